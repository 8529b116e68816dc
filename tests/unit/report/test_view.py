"""What people see while a run goes on, read from its folder alone."""

import contextlib
import io
import os
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from gyre_hpc.observability.events import Event
from gyre_hpc.observability.status import CellStatus, read_status
from gyre_hpc.report.lines import Teller, span
from gyre_hpc.report.screen import screen
from gyre_hpc.report.story import is_over
from gyre_hpc.report.view import LiveView, PlainView, follow, make_view
from tests.unit.report.made_up_run import Tape, make_run


def test_plain_lines_tell_what_matters_once(tmp_path: Path):
    folder = make_run(tmp_path)
    text = io.StringIO()
    with make_view(Console(file=text, width=200)) as view:
        assert isinstance(view, PlainView)
        follow(folder, lambda: True, view)
    lines = text.getvalue().splitlines()
    updates = [line[10:] for line in lines if "/3 ·" in line]
    assert updates[1] == "update 2/3 · pass rate 25.0 % · 1 lent · 0 recalled · 3/4 micro-batches by satellites"
    assert [line.endswith(" · 123 tokens/s · ETA 1m05s") for line in updates] == [False, False, True]  # the status is of about then
    assert sum("held-out tasks" in line for line in lines) == 3
    assert "finished: all updates made" in lines[-1]
    assert len(lines) == 10


def test_what_a_chat_template_cannot_do_is_said_once_a_run(tmp_path: Path):
    teller = Teller()
    notice = Event(
        time=1.0, mono=1.0, process="gateway-0", attempt=1, kind="chat_format", fields={"notice": "the chat template shows no tools"}
    )
    said = [teller.line(event, None) for event in (notice, notice)]
    assert said[0] is not None and said[0].endswith("chat template: the chat template shows no tools")
    assert said[1] is None, "a second shard says the same"


def test_following_shows_what_was_written_last_even_if_it_is_over(tmp_path: Path):
    folder = make_run(tmp_path, finished=False)
    text = io.StringIO()
    answers = iter([False, True])

    def is_over() -> bool:
        over = next(answers)
        if over:
            tape = Tape("supervisor-0")
            tape.note(200, "run_finished", exit_code=1, reason="stopped", update=3)
            tape.write(folder)
        return over

    with make_view(Console(file=text, width=200)) as view:
        follow(folder, is_over, view, interval_s=0)
    assert text.getvalue().splitlines()[-1].endswith("finished: stopped")


def test_a_terminal_gets_the_screen_with_everything_on_it(tmp_path: Path):
    folder = make_run(tmp_path)
    text = io.StringIO()
    with make_view(Console(file=text, width=140, force_terminal=True, _environ={"TERM": "xterm"})) as view:
        assert isinstance(view, LiveView)
        follow(folder, lambda: True, view)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue())
    for part in (
        "3/3",
        "41.0 %",
        "cells needed 2",
        "cell-0 (core)",
        "5 running",
        "123",
        "1m05s",
        "batch of update 3",
        "30s left",
        "2 calls wait",
    ):
        assert part in shown, part


def test_a_status_of_a_run_that_just_began_can_be_shown(tmp_path: Path):
    folder = make_run(tmp_path)
    folder.status.write_text('{"time": 1.0}')
    status = read_status(folder.status)
    assert status is not None
    Console(file=io.StringIO()).print(screen(status, []))


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0s"), (59.4, "59s"), (60, "1m00s"), (3599, "59m59s"), (7620, "2h07m"), (-3, "0s")])
def test_spans_read_easily(seconds: float, shown: str):
    assert span(seconds) == shown


def test_a_run_is_over_when_its_newest_attempt_is(tmp_path: Path):
    folder = make_run(tmp_path)
    assert is_over(folder)
    for attempt in (1, 2):
        (folder.attempts / str(attempt)).mkdir(parents=True)
    (folder.attempts / "1" / "end.json").write_text("{}")
    assert not is_over(folder)
    (folder.attempts / "2" / "end.json").write_text("{}")
    assert is_over(folder)


def test_a_reader_that_is_gone_is_an_error_and_not_the_end_of_the_process(monkeypatch: pytest.MonkeyPatch):
    reading, writing = os.pipe()
    os.close(reading)
    gone = open(writing, "w")  # noqa: SIM115  (its end fails like every other write)
    monkeypatch.setattr("sys.stdout", gone)
    with pytest.raises(BrokenPipeError):
        make_view().show([Event(0.0, 0.0, "controller", 1, "phase", {"phase": "training"})], None)
    with contextlib.suppress(BrokenPipeError):
        gone.close()


def test_what_was_under_way_when_an_attempt_ended_is_not_shown_as_if_it_were(tmp_path: Path):
    status = read_status(make_run(tmp_path).status)
    assert status is not None
    shown = {}
    for over in (False, True):
        text = io.StringIO()
        Console(file=text, width=200).print(screen(status, [], is_over=over))
        shown[over] = text.getvalue()
    assert "ETA" in shown[False] and " running, " in shown[False]
    assert "cells needed" in shown[False] and "to train 1 (data pays)" in shown[False]
    assert "ETA" not in shown[True] and "tokens/s" not in shown[True] and "cells needed" not in shown[True]
    assert " were under way; ended" in shown[True]


def test_why_a_cell_is_idle_has_room_on_a_narrow_screen(tmp_path: Path):
    status = read_status(make_run(tmp_path).status)
    assert status is not None
    cell = CellStatus(name="cell-10", role="rollout", state="rollout", version="0.1000", reason="waits_for_commit")
    text = io.StringIO()
    Console(file=text, width=80).print(screen(msgspec.structs.replace(status, cells=[cell]), []))
    assert "waits_for_commit" in text.getvalue()
