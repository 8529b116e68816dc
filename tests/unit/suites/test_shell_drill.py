"""shell_drill: tasks are reproducible, solvable by the scripted agent in a real shell, and out of reach without reading."""

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from gyre_hpc.chat.base import Message
from gyre_hpc.chat.drill import DrillFormat
from gyre_hpc.config.schema import SuiteConfig
from gyre_hpc.errors import UserError
from gyre_hpc.suites import create_scripted_agent, create_suite
from gyre_hpc.suites.base import Task
from gyre_hpc.suites.shell_drill import ShellDrill, blind_pass_rate, scripted_answer
from gyre_hpc.suites.shell_drill.families import Family
from gyre_hpc.suites.shell_drill.suite import DELEGATION_MARK, read_workspace, score_files

SUITE = ShellDrill(seed=3)
FORMAT = DrillFormat()
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"properties": {"command": {}}}}}]


def lay_out(task: Task, folder: Path) -> Path:
    for name, text in task.files.items():
        (folder / name).write_text(text)
    return folder


def work(task: Task, folder: Path, sloppiness: float, rng: random.Random) -> list[str]:
    """Let the scripted agent do every part in a real shell; returns its commands."""
    commands = []
    for part in task.instruction.split(DELEGATION_MARK):
        messages = [Message(role="user", content=part)]
        while (answer := FORMAT.parse(encoded(messages, sloppiness, rng))).tool_calls:
            command = re.fullmatch(r'\{"command":"(.*)"\}', answer.tool_calls[0].arguments)
            assert command is not None
            commands.append(command[1])
            done = subprocess.run(["sh", "-c", command[1]], cwd=folder, capture_output=True, text=True, check=True)
            messages += [Message(role="assistant", tool_calls=answer.tool_calls), Message(role="tool", content=done.stdout)]
    return commands


def encoded(messages: list[Message], sloppiness: float, rng: random.Random) -> list[int]:
    prompt = FORMAT.tokenizer.decode(FORMAT.render(messages, TOOLS))
    return FORMAT.tokenizer.encode(scripted_answer(prompt, rng, sloppiness))


def tasks_of_every_family(count: int) -> list[Task]:
    tasks = [SUITE.task("train", index) for index in range(count)]
    assert {name for task in tasks for name in task.family.split("+")} == {family.value for family in Family}
    return tasks


def test_the_same_place_is_the_same_task_and_another_place_or_seed_is_not() -> None:
    assert SUITE.task("train", 7) == ShellDrill(seed=3).task("train", 7)
    others = [ShellDrill(seed=4).task("train", 7), SUITE.task("heldout", 7), SUITE.task("train", 8)]
    assert all((other.instruction, other.files) != (SUITE.task("train", 7).instruction, SUITE.task("train", 7).files) for other in others)


@pytest.mark.parametrize(("split", "index"), [("test", 0), ("train", -1)])
def test_an_unknown_task_is_refused(split: str, index: int) -> None:
    with pytest.raises(ValueError, match="splits are train, heldout"):
        SUITE.task(split, index)


def test_the_careful_agent_passes_every_task_in_a_real_shell(tmp_path: Path) -> None:
    for task in tasks_of_every_family(30):
        folder = tmp_path / str(task.index)
        folder.mkdir()
        work(task, lay_out(task, folder), 0.0, random.Random(0))
        score = SUITE.score(task, folder)
        assert (score.value, score.passed) == (1.0, True), task.instruction


def test_the_careless_agent_never_looks_and_passes_nothing(tmp_path: Path) -> None:
    for task in tasks_of_every_family(20):
        folder = tmp_path / str(task.index)
        folder.mkdir()
        commands = work(task, lay_out(task, folder), 1.0, random.Random(0))
        assert not any(command.startswith("grep") for command in commands)
        assert SUITE.score(task, folder).value == 0.0


def test_an_untouched_workspace_scores_nothing() -> None:
    for task in tasks_of_every_family(40):
        assert score_files(task, dict(task.files)).value == 0.0


def test_half_the_numbers_give_half_the_score() -> None:
    task = next(task for task in tasks_of_every_family(40) if task.family == "join")
    first = task.files["a"].strip(".\n")
    target = re.search(r"into (\w)", task.instruction)
    assert target is not None
    score = score_files(task, task.files | {target[1]: f"{first} 0\n"})
    assert (score.value, score.passed) == (0.5, False)


def test_a_setting_that_was_not_asked_for_must_stay() -> None:
    task = next(task for task in tasks_of_every_family(60) if task.family == "config")
    x, y = (task.files[name].strip() for name in "ab")
    kept = re.search(r"z=\d+", task.files["c"])
    assert kept is not None
    assert score_files(task, task.files | {"c": f"x={x}\ny={y}\n{kept[0]}\n"}).passed
    assert score_files(task, task.files | {"c": f"x={x}\ny={y}\nz=0\n"}).value == 0.0


def test_a_blind_script_passes_under_a_tenth() -> None:
    assert blind_pass_rate(SUITE, 500, seed=0) < 0.1


def test_a_fifth_to_a_third_of_the_tasks_delegate_and_say_so() -> None:
    tasks = [SUITE.task("train", index) for index in range(400)]
    assert all((DELEGATION_MARK in task.instruction) == task.delegates for task in tasks)
    assert 80 <= sum(task.delegates for task in tasks) <= 132


def test_links_pipes_and_huge_files_do_not_count(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "link").symlink_to(outside)
    os.mkfifo(workspace / "pipe")
    (workspace / "huge").write_bytes(b"x" * 100_000)
    (workspace / "sub").mkdir()
    (workspace / "bytes").write_bytes(b"\xff3")
    assert read_workspace(workspace) == {"bytes": "\N{REPLACEMENT CHARACTER}3"}


def test_a_missing_workspace_is_our_fault(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        SUITE.score(SUITE.task("train", 0), tmp_path / "gone")


def test_a_summary_hands_on_what_was_read() -> None:
    messages = [
        Message(role="user", content="Join a and b into d."),
        FORMAT_CALL,
        Message(role="tool", content="a:3....\nb:7....\n"),
        Message(role="user", content="Summarise what you know."),
    ]
    assert FORMAT.tokenizer.decode(encoded(messages, 0.0, random.Random(0))) == "a 3 b 7"
    again = [Message(role="user", content="Join a and b into d.\nNotes: a 3 b 7")]
    assert "set 3 7;echo $1 $2 >d" in FORMAT.tokenizer.decode(encoded(again, 0.0, random.Random(0)))


FORMAT_CALL = Message(
    role="assistant",
    tool_calls=FORMAT.parse(
        FORMAT.tokenizer.encode('<tool_call>{"name":"shell","arguments":{"command":"grep -H . a b"}}</tool_call>')
    ).tool_calls,
)


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(UserError, match="shell_drill"):
        create_suite(SuiteConfig(name="nothing"), 0)
    with pytest.raises(UserError, match="no scripted agent"):
        create_scripted_agent(SuiteConfig(name="nothing"), 0.5)


def test_the_scripted_agent_answers_any_prompt() -> None:
    agent = create_scripted_agent(SuiteConfig(), 0.5)
    for prompt in ("", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"):
        assert agent(prompt, random.Random(0))
