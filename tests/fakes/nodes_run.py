"""A whole run over several nodes, all of them this machine: one supervisor per node, each with an address of its own on loopback."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import IO

import msgspec

from gyre_hpc.clock import unix_s
from gyre_hpc.config.compose import compose_config
from gyre_hpc.launch.folder import prepare
from gyre_hpc.observability.process_tree import signal_quietly
from gyre_hpc.protocol.node_map import CellPlace, NodeMap, NodePlace
from gyre_hpc.protocol.supervision import Directory, Entry
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import write_summary
from gyre_hpc.shell.lifetime import child_environment
from gyre_hpc.supervisor.mirror import write_private
from tests.fakes.live_run import REPOSITORY, descendants, is_alive, wait_for
from tests.fakes.whole_run import MARK, WholeRun

JOB = "4711"


def nodes_of(count: int, *cells: CellPlace) -> NodeMap:
    """`count` nodes with a runner on each; without `cells` one timed cell on each."""
    names = [f"supervisor-{index}" for index in range(count)]
    return NodeMap(
        nodes=tuple(NodePlace(name, f"n{index}") for index, name in enumerate(names)),
        cells=cells or tuple(CellPlace(f"cell-{index}", (name,), (0,)) for index, name in enumerate(names)),
        runners={f"runner-{index}": name for index, name in enumerate(names)},
    )


def address(node: int) -> str:
    """Each node has its own, so that nothing is reached that is not told."""
    return f"127.0.0.{node + 1}"


class NodesRun(WholeRun):
    """Like a WholeRun whose `process` is supervisor-0; `nodes` are all supervisors by name."""

    def __init__(self, root: Path, nodes: NodeMap, *overrides: str) -> None:
        self.mark, self._seen = uuid.uuid4().hex, set()
        # Sockets lie below it: its path must be short, which a test's own folder is not.
        self.scratch = Path(tempfile.mkdtemp(prefix="gyre-nodes-"))
        places = [f"paths.run={root / 'run'}", f"paths.cache={root / 'cache'}", f"paths.scratch={self.scratch}"]
        self.config = compose_config([*overrides, f"cluster.cells={len(nodes.cells)}", *places])
        claim = prepare(self.config, unix_s())
        self.folder, self.attempt = claim.folder, claim.attempt
        write_private(self.folder.node_map(claim.attempt), msgspec.json.encode(nodes))
        self.out = self.folder.log("supervisor-0")
        self.out.parent.mkdir(exist_ok=True)
        # The others first: they wait for supervisor-0, whose attempt they are not told.
        self.nodes = {node.supervisor: self.start_node(index, node.host) for index, node in reversed(list(enumerate(nodes.nodes)))}
        self.process = self.nodes["supervisor-0"]

    def start_node(self, index: int, host: str) -> subprocess.Popen[bytes]:
        """Its supervisor, on a leash that we alone hold."""
        own = ["--node", str(index), "--job", JOB, "--host", host] + (["--attempt", str(self.attempt)] if index == 0 else [])
        return self._start(f"supervisor-{index}", address(index), own)

    def join(self, name: str, cells: int, index: int, *, start: Path | None = None) -> None:
        """A node that nobody planned, with room for `cells`. start: of what it joins; None: it looks for that itself."""
        own = ["--name", name, "--cells", str(cells)] + (["--start", str(start)] if start else [])
        self.nodes[name] = self._start(name, address(index), own)

    def _start(self, name: str, interface: str, own: list[str]) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "gyre_hpc.processes.supervisor", "--run", str(self.folder.root), "--interface", interface, *own]
        output: IO[bytes]
        with open(self.folder.log(name), "ab") as output:
            return subprocess.Popen(
                argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
                env=child_environment({MARK: self.mark}),
            )  # fmt: skip

    def __exit__(self, *_: object) -> None:
        everything = self.processes() | {process.pid for process in self.nodes.values()}
        for process in self.nodes.values():
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        for pid in filter(is_alive, everything):
            signal_quietly(pid, signal.SIGKILL)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def below(self, node: int | str) -> set[int]:
        """Living processes of a node, by its place or its supervisor's name, but that supervisor."""
        return descendants(self.nodes[node if isinstance(node, str) else f"supervisor-{node}"].pid)

    def signal_node(self, node: int, sig: signal.Signals) -> None:
        """To its supervisor alone."""
        os.kill(self.nodes[f"supervisor-{node}"].pid, sig)

    def wait_codes(self, within_s: float = 120.0) -> dict[str, int]:
        """Exit codes of all supervisors, and the summary written, as a launcher would."""
        self.wait_end(within_s)
        for name, process in self.nodes.items():
            wait_for(lambda process=process: process.poll() is not None, f"the end of {name}", 60.0)
        write_summary(read_story(self.folder.root))
        return {name: int(process.returncode) for name, process in sorted(self.nodes.items())}

    def entries(self) -> tuple[Entry, ...]:
        """The directory, as it was mirrored last."""
        return msgspec.json.decode(self.folder.endpoints.read_bytes(), type=Directory).entries
