"""The shell_agent program against a scripted API, in real processes, and the rules that tell its calls apart."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.errors import UserError
from gyre_hpc.harnesses import create_harness
from gyre_hpc.harnesses.base import Start
from gyre_hpc.harnesses.shell_agent import ShellAgent
from gyre_hpc.suites.shell_drill.suite import DELEGATION_MARK
from tests.unit.harnesses.chat_api import CUT, ChatApi, serving

HARNESS = ShellAgent()


def run(api: ChatApi, workspace: Path, instruction: str, **options: Any) -> subprocess.CompletedProcess[str]:
    launch = HARNESS.launch(start(api.url, "secret", instruction, str(workspace), **{"max_calls": 6, **options}))
    return subprocess.run(launch.argv, env=launch.environment, cwd=workspace, capture_output=True, text=True, timeout=60, check=False)


def start(url: str, key: str, instruction: str, workspace: str, **options: Any) -> Start:
    return Start(gateway_url=url, api_key=key, instruction=instruction, workspace=workspace, home="/home/agent", options=options)


def roles(api: ChatApi) -> list[str]:
    return [HARNESS.role(seen.headers, seen.body) for seen in api.seen]


@pytest.mark.parametrize("stream", [False, True])
def test_it_runs_what_the_model_says_and_shows_what_came_out(tmp_path: Path, stream: bool) -> None:
    with serving(ChatApi(["$ echo hi >a; cat a", "done"])) as api:
        done = run(api, tmp_path, "Say hi.", stream=stream)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert (tmp_path / "a").read_text() == "hi\n"
    first, second = (seen.body["messages"] for seen in api.seen)
    assert [message["role"] for message in first] == ["system", "user"]
    assert second[:2] == first
    assert second[2]["tool_calls"][0]["function"]["arguments"] == '{"command": "echo hi >a; cat a"}'
    assert second[3] == {"role": "tool", "tool_call_id": "call_1", "content": "hi\n"}
    assert api.seen[0].path == "/e/train-0-0-0/v1/chat/completions"
    assert api.seen[0].headers["authorization"] == "Bearer secret"
    assert roles(api) == ["main", "main"]


def test_a_marked_line_goes_to_a_sub_agent_whose_report_joins_the_instruction(tmp_path: Path) -> None:
    with serving(ChatApi(["$ echo 2 >b", "b is written", "ok"])) as api:
        done = run(api, tmp_path, "First." + DELEGATION_MARK + "Second.")
    assert done.returncode == 0
    assert roles(api) == ["sub_agent", "sub_agent", "main"]
    assert [HARNESS.thread(seen.headers, seen.body) for seen in api.seen] == ["sub-1", "sub-1", "main"]
    assert api.seen[0].body["messages"][1]["content"] == "Second."
    assert api.seen[2].body["messages"][1]["content"] == "First.\nHelper: b is written"


def test_a_long_history_is_replaced_by_the_models_own_summary(tmp_path: Path) -> None:
    with serving(ChatApi(["$ echo 1", "it is 1", "ok"], total_tokens=100)) as api:
        done = run(api, tmp_path, "Look.", context_tokens=90)
    assert done.returncode == 0
    assert roles(api) == ["main", "compaction", "main"]
    main, compaction, after = (seen.body["messages"] for seen in api.seen)
    assert compaction[: len(main)] == main
    assert [message["content"] for message in after[1:]] == ["Look.\nNotes: it is 1"]


def test_a_failed_request_is_sent_again_byte_for_byte(tmp_path: Path) -> None:
    with serving(ChatApi([503, CUT, "ok"])) as api:
        done = run(api, tmp_path, "Look.")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert len(api.seen) == 3
    assert len({seen.raw for seen in api.seen}) == 1


def test_a_refused_request_ends_the_program_with_the_reason(tmp_path: Path) -> None:
    with serving(ChatApi([400])) as api:
        done = run(api, tmp_path, "Look.")
    assert done.returncode == 4
    assert "status 400" in done.stderr
    assert len(api.seen) == 1


def test_an_agent_stops_after_its_calls_and_a_lost_sub_agent_does_not_stop_the_task(tmp_path: Path) -> None:
    with serving(ChatApi(["$ :", "$ :", "$ :", "$ :"])) as api:
        done = run(api, tmp_path, "First." + DELEGATION_MARK + "Second.", max_calls=2)
    assert done.returncode == 3
    assert roles(api) == ["sub_agent", "sub_agent", "main", "main"]
    assert api.seen[2].body["messages"][1]["content"] == "First.\nHelper: failed"


def test_output_is_cut_and_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    command = "sleep 1000 >/dev/null 2>&1 & echo $! >pid; seq 1000"
    with serving(ChatApi([f"$ {command}", "ok"])) as api:
        assert run(api, tmp_path, "Count.").returncode == 0
    assert len(api.seen[1].body["messages"][3]["content"]) == 130
    state = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not state.exists() or " Z " in state.read_text()


def test_text_outside_ascii_survives_both_ways(tmp_path: Path) -> None:
    with serving(ChatApi(["$ echo 'é\N{SNOWMAN}'", "d\N{SNOWMAN}"])) as api:
        done = run(api, tmp_path, "Say é.")
    assert done.stdout == "d\N{SNOWMAN}\n"
    assert api.seen[1].body["messages"][3]["content"] == "é\N{SNOWMAN}\n"


def test_the_program_imports_the_standard_library_alone() -> None:
    folder = Path(HARNESS.launch(start("", "", "", "")).readable[1])
    names = {path.stem for path in folder.glob("*.py")}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert all(module.split(".")[0] in sys.stdlib_module_names | names for module in modules), path


def test_the_launch_tells_the_program_nothing_but_its_task() -> None:
    launch = HARNESS.launch(start("http://127.0.0.1:1/e/x", "k", "--max-calls", "/workspace", max_calls=4))
    assert launch.argv[-3:] == ("--max-calls", "4", "--max-calls")
    assert launch.environment == {
        "OPENAI_BASE_URL": "http://127.0.0.1:1/e/x/v1",
        "OPENAI_API_KEY": "k",
        "PATH": "/usr/bin:/bin",
        "HOME": "/home/agent",
    }


def test_an_unknown_harness_is_refused() -> None:
    with pytest.raises(UserError, match="shell_agent"):
        create_harness("claude")
