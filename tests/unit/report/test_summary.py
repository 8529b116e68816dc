"""summary.json says what the files say."""

import json
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.errors import UserError
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.report.compare import compare
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import closing_line, newest_checkpoint, summarize, write_summary
from gyre_hpc.supervisor.attempts import end_of
from tests.unit.report.made_up_run import Tape, make_run

KEYS = {
    "pass_rate_before", "pass_rate_after", "updates", "wall_s", "cpu_s", "role_switches", "switch_s", "satellites_joined_mid_batch",
    "micro_batches_by_satellites_share", "calls_continued_elsewhere", "executions", "tokens", "max_logprob_gap", "on_policy_tokens",
    "idle_s", "blind_pass_rate", "updates_with_lend_and_recall", "staleness", "seed", "attempts", "format", "checkpoint",
}  # fmt: skip


def test_the_file_has_every_promised_key(tmp_path: Path):
    folder = make_run(tmp_path)
    write_summary(read_story(tmp_path))
    written = json.loads(folder.summary.read_text())
    assert set(written) >= KEYS
    assert set(written["executions"]) == {"scored", "partial", "unscored", "infra_error", "branching"}
    assert set(written["tokens"]) == {"sampled", "trained", "lost", "resampled", "unreceived", "reprefilled"}
    assert set(written["role_switches"]) == {"rollout_to_train", "train_to_rollout"}


def test_numbers_are_those_of_the_events(tmp_path: Path):
    make_run(tmp_path)
    summary = summarize(read_story(tmp_path))
    assert (summary.pass_rate_before, summary.pass_rate_after, summary.blind_pass_rate) == (0.2, 0.6, 0.05)
    assert (summary.updates, summary.wall_s, summary.seed, summary.attempts, summary.exit_code) == (3, 75.0, 7, 1, 0)
    assert summary.role_switches == {"rollout_to_train": 3, "train_to_rollout": 3}
    assert summary.switch_s["rollout_to_train"] == pytest.approx({"drain": 0.4, "sleep": 0.2, "total": 0.6})
    assert summary.kv_moved == {"conversations": 9, "stayed": 9, "tokens": 300, "seconds": 0.75}
    assert (summary.satellites_joined_mid_batch, summary.micro_batches_by_satellites_share) == (3, 0.75)
    assert summary.executions == {"scored": 21, "partial": 3, "unscored": 0, "infra_error": 0, "branching": 12}
    assert summary.tokens == {"sampled": 5000, "trained": 600, "lost": 0, "resampled": 0, "unreceived": 3, "reprefilled": 11}
    assert summary.evaluation_tokens == {"sampled": 900, "sampled_warm_start": 700}
    assert summary.max_logprob_gap == pytest.approx(4e-6)
    assert summary.on_policy_tokens == 480
    assert summary.updates_with_lend_and_recall == 2
    assert summary.staleness == {"0": 4, "1": 8}
    assert summary.idle_s == pytest.approx({"starting": 16.0, "tools_or_empty": 12.0, "switching": 6.0, "waits_for_groups": 6.0})


def test_the_reason_of_an_end_by_signal_is_what_the_job_knows_of_it(tmp_path: Path):
    folder = make_run(tmp_path)
    before = summarize(read_story(tmp_path)).reason
    end_of(folder, 1).parent.mkdir(parents=True, exist_ok=True)
    end_of(folder, 1).write_text(json.dumps({"exit_code": 130, "reason": "told to save (SIGUSR2)", "time": 1.0}))
    assert summarize(read_story(tmp_path)).reason == before != "told to save (SIGUSR2)", "no job spoke"
    events = EventWriter(folder.events("job", 1), "job", 1)
    events.note("job_told", {"job": "7", "signal": "SIGUSR2", "fate": "running", "ordered": ""})
    events.close()
    assert summarize(read_story(tmp_path)).reason == "told to save (SIGUSR2)"


def test_cpu_counts_every_incarnation_once_and_every_kind(tmp_path: Path):
    make_run(tmp_path)
    # cell-1: 3 s, then 0.5 s of its successor; the status knows 9 s of each cell.
    assert summarize(read_story(tmp_path)).cpu_s == {"cell": 36.0, "gateway": 5.0, "harness": 30.0, "runner": 2.0, "total": 73.0}


def test_what_was_done_again_after_a_loss_counts_once(tmp_path: Path):
    folder = make_run(tmp_path)
    before = summarize(read_story(tmp_path))
    lines = folder.events("controller", 1).read_bytes().splitlines(keepends=True)
    again = [line for line in lines if b'"applied"' in line or b'"group_ready"' in line]
    folder.events("controller", 2).write_bytes(b"".join(line.replace(b'"attempt":1', b'"attempt":2') for line in again))
    after = summarize(read_story(tmp_path))
    assert after.attempts == 2
    assert (after.updates, after.tokens, after.executions, after.staleness) == (
        before.updates,
        before.tokens,
        before.executions,
        before.staleness,
    )


def test_tokens_of_all_attempts_count_and_a_restarted_shard_counts_once(tmp_path: Path):
    folder = make_run(tmp_path)
    first = Tape("gateway-0", attempt=1)
    first.note(50, "tokens", counts={"sampled": 100})
    first.note(60, "tokens", counts={"sampled": 5100, "reprefilled": 11})  # after a restart: the same and more
    first.write(folder)
    second = Tape("gateway-0", attempt=2)
    second.note(100, "tokens", counts={"sampled": 40, "eval_sampled": 7})
    second.write(folder)
    summary = summarize(read_story(tmp_path))
    assert summary.tokens["sampled"] == 5140 and summary.tokens["reprefilled"] == 11
    assert summary.evaluation_tokens == {"sampled": 907, "sampled_warm_start": 700}


def test_of_a_shard_that_was_killed_with_its_attempt_the_calls_it_ended_count(tmp_path: Path):
    folder = make_run(tmp_path)
    for name in ("gateway-0", "gateway-1"):
        tape = Tape(name, attempt=2)
        for call, num in (("train-0-0-0/0", 30), ("train-0-0-1/0", 12), ("train-0-0-1/0", 12), ("eval-0-0-0/0", 5)):
            tape.note(70, "call_ended", call=call, finish="stop", num_output=num, cells=["cell-0"], wall_s=0.1)
        if name == "gateway-1":
            tape.note(80, "tokens", counts={"sampled": 40})  # two of them were sampled in the attempt before
        tape.write(folder)
    summary = summarize(read_story(tmp_path))
    assert summary.tokens["sampled"] == 5000 + 42 + 40
    assert summary.evaluation_tokens["sampled"] == 900 + 5


def test_a_token_fault_shows_even_if_the_shard_that_counted_it_died(tmp_path: Path):
    folder = make_run(tmp_path)
    tape = Tape("gateway-0")
    tape.note(30, "token_fault", call="train-0-0-0/3", what="lost", num=2)
    tape.note(31, "token_fault", call="eval-0-0-0/3", what="lost", num=5)
    tape.note(32, "token_fault", call="train-0-0-1/1", what="resampled", num=1)
    tape.write(folder)
    tokens = summarize(read_story(tmp_path)).tokens
    assert (tokens["lost"], tokens["resampled"]) == (2, 1)


def test_training_calls_of_several_cells_went_on_elsewhere(tmp_path: Path):
    folder = make_run(tmp_path)
    tape = Tape("gateway-0")
    for at, call, cells in (
        (1, "train-0-0-0/0", ["cell-0"]),
        (2, "train-0-0-0/1", ["cell-0", "cell-1"]),
        (3, "eval-0-0-0/0", ["cell-0", "cell-1"]),
    ):
        tape.note(at, "call_ended", call=call, finish="stop", num_output=3, cells=cells, wall_s=0.1)
    tape.note(4, "call_ended", call="train-0-0-0/1", finish="stop", num_output=3, cells=["cell-0", "cell-1"], wall_s=0.1)
    tape.write(folder)
    assert summarize(read_story(tmp_path)).calls_continued_elsewhere == 1


def test_an_end_whose_event_died_with_the_controller_counts(tmp_path: Path):
    folder = make_run(tmp_path)
    path = folder.events("controller", 1)
    lines = path.read_bytes().splitlines(keepends=True)
    lost = next(line for line in lines if b'"execution_ended"' in line)
    path.write_bytes(b"".join(line for line in lines if line != lost))
    assert summarize(read_story(tmp_path)).executions["scored"] == 21


def test_an_update_whose_event_died_with_the_controller_counts_by_the_version_loaded_after_it(tmp_path: Path):
    folder = make_run(tmp_path, updates=3, finished=False)
    tape = Tape("controller", attempt=2)
    tape.note(500, "version_published", version="1.4", update=3)
    tape.write(folder)
    assert summarize(read_story(tmp_path)).updates == 4


def test_a_pause_between_attempts_is_no_wall_time_and_no_idle_time(tmp_path: Path):
    folder = make_run(tmp_path, finished=False)
    first, idle = summarize(read_story(tmp_path)).wall_s, summarize(read_story(tmp_path)).idle_s
    tape = Tape("controller", attempt=2)
    tape.note(100_000, "attempt_started", attempt=2, records=5)
    tape.note(100_010, "run_finished", exit_code=0, reason="all updates made", update=3)
    tape.write(folder)
    assert summarize(read_story(tmp_path)).wall_s == first + 10
    assert summarize(read_story(tmp_path)).idle_s == pytest.approx(idle)


def test_a_run_of_which_nothing_is_known_yet_has_a_summary(tmp_path: Path):
    folder = make_run(tmp_path)
    folder.status.unlink()
    for path in folder.events_folder.iterdir():
        path.unlink()
    summary = summarize(read_story(tmp_path))
    assert (summary.pass_rate_before, summary.micro_batches_by_satellites_share, summary.exit_code, summary.updates) == (
        None,
        None,
        None,
        0,
    )


def test_only_whole_checkpoints_count_and_ten_comes_after_two(tmp_path: Path):
    folder = make_run(tmp_path)
    assert newest_checkpoint(folder.checkpoints, folder.root) == "checkpoints/0.10"


def test_the_closing_line_has_the_promised_form(tmp_path: Path):
    folder = make_run(tmp_path)
    line = closing_line(summarize(read_story(tmp_path)), folder.report)
    assert line.startswith("quickstart: pass rate 20.0 % -> 60.0 % on held-out tasks, 3 updates, ")
    assert line.endswith(f"report: {folder.report}")
    bare = msgspec.structs.replace(summarize(read_story(tmp_path)), pass_rate_before=None, pass_rate_after=None)
    assert closing_line(bare, folder.report).startswith("quickstart: not evaluated, 3 updates, ")


def test_a_folder_that_is_no_run_is_said_so(tmp_path: Path):
    with pytest.raises(UserError, match="config.yaml"):
        read_story(tmp_path)


def test_compare_shows_differences_first(tmp_path: Path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    one, other = summarize(read_story(tmp_path / "a")), summarize(read_story(tmp_path / "b"))
    lines = compare([("a", one), ("b", msgspec.structs.replace(other, seed=8))]).splitlines()
    assert lines[0].split() == ["a", "b"]
    assert lines[1].split() == ["seed", "7", "8"]
    assert any(line.split() == ["updates", "3", "3"] for line in lines[2:])
