"""Signs of life in a run folder, whatever the clocks say."""

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.protocol.node_map import RunStart
from gyre_hpc.report.watch.signs import SILENT_S, answers_http, read_signs
from gyre_hpc.supervisor.attempts import end_of


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """One attempt, an hour old."""
    folder = RunFolder(tmp_path)
    folder.alive(1).parent.mkdir(parents=True)
    folder.alive(1).touch()
    stamp(folder, -3600.0)
    return folder


def stamp(folder: RunFolder, seconds: float) -> None:
    at = time.time() + seconds
    for path in (folder.alive(1), folder.alive(1).parent):
        os.utime(path, (at, at))


def test_without_an_attempt_there_is_nothing_to_be_silent(tmp_path: Path):
    assert read_signs(RunFolder(tmp_path)).attempt == 0


def test_a_fresh_touch_is_life_and_waits_for_nothing(folder: RunFolder):
    stamp(folder, -3.0)
    waits: list[float] = []
    signs = read_signs(folder, wait=waits.append)
    assert signs.silent_s < SILENT_S and not waits


def test_what_does_not_change_before_our_eyes_is_silent(folder: RunFolder):
    waits: list[float] = []
    signs = read_signs(folder, wait=waits.append)
    assert 3590 < signs.silent_s < 3700 and sum(waits) > 4


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_clocks_an_hour_apart_hide_no_life(folder: RunFolder, seconds: float):
    stamp(folder, seconds)
    looks = []

    def touch(after_s: float) -> None:
        looks.append(after_s)
        if len(looks) == 3:
            stamp(folder, seconds + 1)

    assert read_signs(folder, wait=touch).silent_s == 0.0 and len(looks) == 3


def test_a_dead_run_stamped_by_a_clock_that_is_ahead_is_not_taken_for_alive(folder: RunFolder):
    stamp(folder, 3600.0)
    assert read_signs(folder, wait=lambda after_s: None).silent_s >= SILENT_S


def test_a_status_that_is_older_than_the_signs_of_life_is_told_by_how_much(folder: RunFolder):
    stamp(folder, -1.0)
    assert read_signs(folder).status_behind_s == 0.0, "there is none"
    folder.status.touch()
    os.utime(folder.status, (1, time.time() - 91.0))
    assert read_signs(folder).status_behind_s == pytest.approx(90.0, abs=0.5)
    os.utime(folder.status, (1, time.time()))
    assert read_signs(folder).status_behind_s == 0.0


def test_an_end_is_read_and_a_damaged_one_is_an_end_too(folder: RunFolder):
    end_of(folder, 1).write_text(json.dumps({"exit_code": 0, "reason": "done", "time": 5.0}))
    end = read_signs(folder).end
    assert end is not None and (end.exit_code, end.reason) == (0, "done")
    end_of(folder, 1).write_text("{")
    end = read_signs(folder).end
    assert end is not None and end.exit_code == 1 and "cannot be read" in end.reason


def test_a_supervisor_that_takes_our_token_is_there_whatever_the_folder_shows():
    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400 if self.headers["Authorization"] == "Bearer ours" else 401)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        start = RunStart(1, f"http://127.0.0.1:{server.server_port}")
        assert answers_http(start, "ours") and not answers_http(start, "another run's")
        server.shutdown()
    assert not answers_http(start, "ours", within_s=0.5) and not answers_http(None, "ours")
