"""Real cell processes and a stand-in for controller and supervisor: sends orders, keeps reports, serves micro-batches."""

import json
import os
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config, ModelConfig
from gyre_hpc.config.stored import store_config
from gyre_hpc.observability.process_tree import signal_quietly
from gyre_hpc.protocol import micro_batch
from gyre_hpc.protocol.envelope import Envelope, Message, decode, encode
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.micro_batch import MicroBatch, Sequence
from gyre_hpc.protocol.supervision import Directory, Entry, Register
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.protocol.to_batch import CellReport
from gyre_hpc.protocol.to_cell import Lease, Order
from gyre_hpc.shell.hosted import CellOrder, Verb, line_of
from gyre_hpc.shell.lifetime import PARENT_PID
from gyre_hpc.supervisor.commands import Commands
from tests.fakes.live_run import REPOSITORY, descendants, is_alive, wait_for

TOKEN = "run-token"


def tiny_config(**fields: Any) -> Config:
    model = ModelConfig(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=8, intermediate_size=32, max_context=64)
    config = Config(model=model, **fields)
    config.engine.kv_tokens = 512
    return config


def make_micro_batch(id: str, version: Version, *, num_sequences: int = 3, length: int = 12) -> MicroBatch:
    """Deterministic by id: prompts of 4 tokens, 8 targets each, advantages of both signs."""
    update, ordinal = (int(part) for part in id.split(":"))
    dice = np.random.default_rng(1000 * update + ordinal)
    sequences = []
    for index in range(num_sequences):
        weights = np.zeros(length, dtype=np.float32)
        weights[4:] = 1.0 / (length - 4)
        sequences.append(
            Sequence(
                execution=f"train-0-{ordinal}-{index}",
                ids=pack_ids(dice.integers(0, 60, length)),
                weights=pack_floats(weights),
                logprobs=pack_floats(np.where(weights > 0, -4.0, 0.0)),
                on_policy=bytes(length),
                advantage=1.0 if index % 2 else -0.7,
            )
        )
    targets = num_sequences * (length - 4)
    return MicroBatch(id, update, version, "policy", tuple(sequences), num_sequences * length, targets)


class Stage:
    """Context manager. `order(cell, ...)` sends one; `report(cell)` is the newest; `until` waits for one that fits."""

    def __init__(self, root: Path, config: Config) -> None:
        self.folder, self.config = RunFolder(root), config
        store_config(config, self.folder.config)
        self.folder.token.parent.mkdir(parents=True, exist_ok=True)
        self.folder.token.write_text(TOKEN)
        self.reports: dict[str, list[CellReport]] = {}
        self.registered: dict[str, Register] = {}
        self.micro_batches: dict[str, bytes] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._seq = 0
        self._directory = 0

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for cell in list(self.processes):
            self.kill(cell)
        self._server.shutdown()
        self._server.server_close()

    def start(self, cell: str, incarnation: int = 0) -> None:
        """As the supervisor would: torchrun with a rendezvous of its own, or plain python for a timed cell."""
        command = self.commands.build(cell, incarnation)
        self.processes[cell] = self._spawn(cell, command.argv, command.environment)

    @property
    def commands(self) -> Commands:
        return Commands(
            config=self.config, run=str(self.folder.root), scratch=str(self.folder.root / "scratch"), attempt=1, supervisor_url=self.url
        )

    def start_together(self, *cells: str) -> None:
        """Timed cells, all in the process that cluster.cells_per_process gives the first one."""
        command = self.commands.build(cells[0], 0)
        assert command.shared is not None
        process = self._spawn(command.shared.name, command.argv, command.environment)
        assert process.stdin is not None
        process.stdin.write(b"".join(line_of(CellOrder(Verb.birth, cell, 0)) for cell in cells))
        process.stdin.flush()
        self.processes |= dict.fromkeys(cells, process)

    def _spawn(self, name: str, argv: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        log = self.folder.log(name)
        log.parent.mkdir(exist_ok=True)
        with open(log, "ab") as output:
            return subprocess.Popen(
                argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, **environment, PARENT_PID: str(os.getpid()), "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def kill(self, cell: str) -> None:
        """kill -9 of all its processes; what is known of it is forgotten."""
        process = self.processes.pop(cell)
        for pid in {process.pid, *descendants(process.pid)}:
            if is_alive(pid):
                signal_quietly(pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        self.registered.pop(cell, None)
        self.reports.pop(cell, None)

    def wait_registered(self, *cells: str) -> None:
        for cell in cells:
            wait_for(lambda cell=cell: cell in self.registered or self._ended(cell), f"registration of {cell}", 100)
            assert cell in self.registered, self.log(cell)
        self._directory += 1
        entries = [Entry("controller", 0, self.url), *(Entry(name, one.incarnation, one.url) for name, one in self.registered.items())]
        for cell in cells:
            self.post(cell, Directory(self._directory, tuple(entries)), sender="supervisor-0")
        for cell in cells:
            wait_for(lambda cell=cell: self.reports.get(cell), f"a first report of {cell}")

    def _ended(self, cell: str) -> bool:
        return self.processes[cell].poll() is not None

    def log(self, cell: str) -> str:
        return self.folder.log(cell).read_text()[-3000:]

    def post(self, cell: str, message: Message, sender: str = "controller") -> None:
        body = encode(Envelope(sender, 1, message))
        request = urllib.request.Request(
            f"{self.registered[cell].url}/messages", data=body, headers={"Authorization": f"Bearer {TOKEN}"}, method="POST"
        )
        urllib.request.urlopen(request, timeout=10).close()

    def order(self, cell: str, **fields: Any) -> Order:
        self._seq += 1
        order = Order(seq=self._seq, **fields)
        self.post(cell, order)
        return order

    def report(self, cell: str) -> CellReport:
        return self.reports[cell][-1]

    def until(self, cell: str, fits: Callable[[CellReport], object], what: str, within_s: float = 60.0) -> CellReport:
        """Wait for a report that fits."""

        def seen() -> bool:
            assert not self._ended(cell), self.log(cell)
            return bool(fits(self.report(cell)))

        try:
            wait_for(seen, what, within_s)
        except AssertionError as error:
            last = msgspec.json.format(msgspec.json.encode(self.report(cell)), indent=1).decode()
            raise AssertionError(f"{error}\nlast report: {last}\nlog: {self.log(cell)}") from error
        return self.report(cell)

    def leases(self, version: Version, *ids: str) -> tuple[Lease, ...]:
        for id in ids:
            self.micro_batches.setdefault(id, micro_batch.encode(make_micro_batch(id, version)))
        return tuple(Lease(id, f"{self.url}/micro_batches/{id}", 36) for id in ids)

    def generate(self, cell: str, **extra: Any) -> dict[str, Any]:
        """One call of SGLang's native API."""
        body = {"input_ids": [1, 2, 3, 4, 5], "sampling_params": {"max_new_tokens": 8, "temperature": 1.0}, **extra}
        request = urllib.request.Request(
            f"{self.report(cell).engine_url}/generate",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())


def _handler(stage: Stage) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            envelope = decode(self.rfile.read(int(self.headers["Content-Length"])))
            match envelope.body:
                case CellReport() as report:
                    stage.reports.setdefault(envelope.sender, []).append(report)
                case Register() as register:
                    stage.registered[register.process] = register
            self._answer(204, b"")

        def do_GET(self) -> None:
            data = stage.micro_batches.get(self.path.removeprefix("/micro_batches/"))
            allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            self._answer(401 if not allowed else 404 if data is None else 200, data or b"")

        def _answer(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return None

    return Handler
