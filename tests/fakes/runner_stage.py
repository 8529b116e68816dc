"""Everything a runner talks to, in one HTTP server: supervisor, controller, and a gateway that answers with a script."""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.protocol.envelope import Envelope, Message, decode, encode
from gyre_hpc.protocol.supervision import Directory, Entry, Register
from gyre_hpc.protocol.to_batch import Ended, RunnerReport
from gyre_hpc.protocol.to_runner import Assignment, Begin
from gyre_hpc.protocol.tokens import is_execution_token
from gyre_hpc.shell.arguments import arguments
from gyre_hpc.shell.lifetime import PARENT_PID
from tests.fakes.live_run import REPOSITORY, descendants, wait_dead, wait_for

TOKEN = "run-token"
Answer = Callable[[str, list[dict[str, Any]]], str | None]
"""(execution, messages) -> shell command to call, or None to stop."""


class RunnerStage:
    """A real runner process on a real run folder. Use as a context manager."""

    def __init__(self, root: Path, config: Config, answer: Answer) -> None:
        self.folder, self.config, self.answer = RunFolder(root), config, answer
        store_config(config, self.folder.config)
        self.folder.token.parent.mkdir(parents=True, exist_ok=True)
        self.folder.token.write_text(TOKEN)
        self.registered: Register | None = None
        self.report: RunnerReport | None = None
        self.refused: list[str] = []
        self.incarnation, self.number = 0, 0

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._server.shutdown()
        self._server.server_close()

    def start(self) -> None:
        """A new incarnation of the runner, told where everybody is."""
        self.incarnation += 1
        tail = arguments(name="runner-0", run=str(self.folder.root), attempt=1, incarnation=self.incarnation, supervisor_url=self.url)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gyre_hpc.processes.runner", *tail], cwd=REPOSITORY, stdin=subprocess.PIPE,
            env={**os.environ, PARENT_PID: str(os.getpid())}, start_new_session=True,
        )  # fmt: skip
        wait_for(lambda: self.registered is not None and self.registered.incarnation == self.incarnation, "registration")
        self.send(Directory(self.incarnation, (Entry("controller", 1, self.url), Entry("gateway-0", 1, self.url))))

    def end(self) -> None:
        """In order, as the supervisor does it."""
        self.process.terminate()
        self.process.wait(30)

    def kill(self) -> None:
        """SIGKILL; everything it started must die of it."""
        below = descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        wait_dead(below)

    def send(self, message: Message) -> None:
        assert self.registered is not None
        request = urllib.request.Request(
            f"{self.registered.url}/messages",
            data=encode(Envelope("controller", 1, message)),
            headers={"Authorization": f"Bearer {TOKEN}"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 204

    def assign(self, *begins: Begin, acked: tuple[str, ...] = ()) -> None:
        self.number += 1
        self.send(Assignment(self.number, begins, acked))

    def ended(self, execution: str, within_s: float = 40.0) -> Ended:
        """Wait for its end."""
        found: list[Ended] = []

        def told() -> bool:
            found[:] = [ended for ended in (self.report.ended if self.report else ()) if ended.execution == execution]
            return bool(found)

        wait_for(told, f"end of {execution}", within_s)
        return found[0]

    def take(self, envelope: Envelope) -> None:
        match envelope.body:
            case Register() as register:
                self.registered = register
            case RunnerReport() as report if report.incarnation == self.incarnation:
                self.report = report


def _handler_of(stage: RunnerStage) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/messages":
                stage.take(decode(body))
                self._answer(204, b"")
                return
            execution = self.path.split("/")[2]
            if not is_execution_token(self.headers["Authorization"].removeprefix("Bearer "), TOKEN, execution):
                stage.refused.append(execution)
                self._answer(401, b"{}")
                return
            self._answer(200, json.dumps(_completion(stage.answer(execution, json.loads(body)["messages"]))).encode())

        def _answer(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler


def _completion(command: str | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "done"}
    if command is not None:
        function = {"name": "shell", "arguments": json.dumps({"command": command})}
        message = {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"total_tokens": 10}}
