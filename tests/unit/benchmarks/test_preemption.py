"""What benchmarks.preemption reads from a run: engines' own counters, journals, shares."""

import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from benchmarks.preemption.engines import Engines, last_words, listening
from benchmarks.preemption.figures import journaled, saved_share
from gyre_hpc.observability.events import Event
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallProgress, ExecutionEnd
from gyre_hpc.trajectory.segment import frame, header


def test_engines_are_found_by_the_ports_of_their_cells_and_tell_what_they_sampled() -> None:
    class Engine(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_mine = self.path == "/server_info" and self.headers["Authorization"] == "Bearer secret"
            body = b'{"counters": {"sampled": 17}}' if is_mine else b"{}"
            self.send_response(200 if is_mine else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert {server.server_port, other.getsockname()[1]} <= set(listening(os.getpid()))
    try:
        engines = Engines("secret", [os.getpid()])
        assert (len(engines), engines.sampled()) == (1, 17)
        assert len(Engines("another", [os.getpid()])) == 0
    finally:
        server.shutdown()
        server.server_close()


def test_last_words_and_journals_are_those_of_one_attempt(tmp_path: Path) -> None:
    words = [
        Event(1.0, 1.0, f"cell-{cell}", attempt, "engine_tokens", {"counts": {"sampled": 5}}) for cell, attempt in ((0, 1), (1, 1), (0, 2))
    ]
    assert last_words(words, 1) == 10
    version = Version(0, 0)
    piece = CallProgress("train-0-0-0/0", 0, b"\0" * 12, b"\0" * 12, (), version, "cell-0", 1.0)
    for name in ("gateway-0-1-000000", "gateway-1-1-000000", "gateway-0-2-000000", "gateway-0-11-000000"):
        (tmp_path / f"{name}.gyj").write_bytes(header() + frame(piece) + frame(ExecutionEnd("train-0-0-0", 2.0)))
    assert journaled(tmp_path, 1) == 6


def test_what_no_journal_has_is_at_stake_too() -> None:
    replay = {"tokens_at_stake": 900, "tokens_saved": 900}
    assert saved_share(replay, 100) == 0.9
    assert saved_share(replay | {"tokens_saved": 450}, 0) == 0.5
    assert saved_share({"tokens_at_stake": 0, "tokens_saved": 0}, 0) is None
