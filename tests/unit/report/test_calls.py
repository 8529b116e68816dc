"""`gyre calls`: what the journal of a run says of its model calls."""

import json
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.chat import create_chat_format
from gyre_hpc.chat.base import Message
from gyre_hpc.cli.commands import run
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Delivered, Record, Sampling, Stored, VersionSpan
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.trajectory.segment import frame, header
from tests.fakes.journal_segments import spoil, write

FORMAT = create_chat_format("drill", "drill")
EXECUTION = "train-0-0-0"
FIRST, SECOND = f"{EXECUTION}/0", f"{EXECUTION}/1"
BAD = '<tool_call>{"name":"shell"</tool_call>'
OUTPUT = [*FORMAT.tokenizer.encode("Let me see. " + BAD), FORMAT.stop_ids[0]]
PROMPT = FORMAT.render([Message(role="user", content="look")], [])
SUFFIX = FORMAT.render_suffix([Message(role="user", content="on")], ended=True)


def progress(call: str, start: int, ids: list[int], step: int) -> CallProgress:
    span = VersionSpan(Version(0, step), start, start + len(ids))
    return CallProgress(call, start, pack_ids(ids), pack_floats([-1.0] * len(ids)), (span,), Version(0, step), f"cell-{step}", 2.0)


def records() -> list[Record]:
    start = OUTPUT.index(FORMAT.tokenizer.encode(BAD)[0])
    return [
        CallBegin(FIRST, EXECUTION, None, pack_ids(PROMPT), "main", "", "root", Sampling(stop=("x",)), {"top_p": 0.5}, "h", 1.0, protocol="responses"),
        progress(FIRST, 0, OUTPUT[:4], 1),
        progress(FIRST, 4, OUTPUT[4:], 2),
        Stored(FIRST, b"", b""),
        CallEnd(
            FIRST, "tool_calls", len(OUTPUT), 1, ("call_x",), "d", ("cell-1", "cell-2"), 3, 3.0,
            malformed_spans=((start, len(OUTPUT) - 1),), engine_digest="e", num_cached=2,
        ),
        Delivered(FIRST, 4.0),
        CallBegin(SECOND, EXECUTION, FIRST, pack_ids(SUFFIX), "compaction", "t", "compaction", Sampling(), {}, "h", 5.0),
        progress(SECOND, 0, [*b"ok"], 2),
        CallBegin("eval-0-0-0/0", "eval-0-0-0", None, pack_ids(PROMPT), "main", "", "root", Sampling(), {}, "h", 1.0),
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = RunFolder(tmp_path)
    store_config(Config(), made.config)
    made.journal.mkdir(parents=True)
    # A live run: its last record is torn.
    data = header() + b"".join(map(frame, records()))
    (made.journal / "gateway-0-1-000000.gyj").write_bytes(data + frame(records()[0])[:20])
    return tmp_path


def test_a_table_has_a_line_per_call_with_what_was_rendered_and_why_it_branched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calls", str(folder), "--execution", EXECUTION]) == 0
    _, first, second, total = capsys.readouterr().out.splitlines()
    assert first.split() == [
        FIRST,
        "main",
        "root",
        *[str(len(PROMPT))] * 2,
        str(len(OUTPUT)),
        "cell-1,cell-2",
        "tool_calls",
        "untrained",
        "1",
    ]
    prompt = len(PROMPT) + len(OUTPUT) + len(SUFFIX)
    assert second.split() == [SECOND, "compaction", "t", "compaction", "0", str(prompt), str(len(SUFFIX)), "2", "cell-2", "runs", "no"]
    assert total == f"2 calls, {len(OUTPUT) + 2} tokens, 1 conversations begun, 1 branches"


def test_json_has_an_object_per_call(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calls", str(folder), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["call"] for row in rows] == [FIRST, SECOND, "eval-0-0-0/0"]
    assert (rows[0]["trained"], rows[0]["delivered"], rows[0]["protocol"]) == (False, True, "responses")


def test_one_call_is_shown_with_its_texts_and_the_answer_as_sent(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calls", str(folder), "--call", FIRST]) == 0
    shown = capsys.readouterr().out
    for piece in (
        repr(FORMAT.tokenizer.decode(PROMPT)), repr("Let me see. "), f"call_{EXECUTION}_0_0", "[0, 4) 0.1", f"[4, {len(OUTPUT)}) 0.2", repr(BAD),
        "top_p=0.5", "stop ['x']", "ENGINE has e",
    ):  # fmt: skip
        assert piece in shown
    assert run(["calls", str(folder), "--call", FIRST, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert (whole["suffix_ids"], whole["output_ids"]) == (PROMPT, OUTPUT)


@pytest.mark.parametrize("more", [["--call", f"{EXECUTION}/9"], ["--execution", "train-9-9-9"]])
def test_what_is_not_there_is_one_line_and_exit_code_2(folder: Path, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calls", str(folder), *more]) == 2
    assert more[1] in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    assert run(["calls", str(tmp_path)]) == 2


def test_who_asks_for_one_execution_reads_no_finished_segment_of_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (others,) = write(folder / "journal", *[replace_execution(record) for record in records()[:2]], attempt=2)
    spoil(others)
    assert run(["calls", str(folder), "--execution", EXECUTION]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert run(["calls", str(folder)]) == 2


def replace_execution(record: Record) -> Record:
    """The same of another execution."""
    other = {"call": "train-9-9-9/0"} | ({"execution": "train-9-9-9"} if isinstance(record, CallBegin) else {})
    return msgspec.structs.replace(record, **other)
