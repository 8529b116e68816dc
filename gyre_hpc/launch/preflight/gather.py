"""The probes of all nodes of a run: here, within a running job (each node calls `preflight`), or from a login node by a short srun."""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from gyre_hpc.config.place import outputs_above
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import ClusterKind, Config
from gyre_hpc.config.stored import load_config, store_config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.preflight.facts import NodeProbe
from gyre_hpc.launch.preflight.judge import Verdict, judge
from gyre_hpc.launch.preflight.meeting import LATEST_S, take_part
from gyre_hpc.launch.preflight.probe import host_here
from gyre_hpc.launch.preflight.srun import srun
from gyre_hpc.runner.workspaces import remove_tree
from gyre_hpc.shell.timers import until
from gyre_hpc.whole_file import write_whole

CONFIG, PROBES = "config.yaml", "probes.json"
"""Files of a meeting beside its own: what the nodes are told, and what node 0 found."""
_LOOK_EVERY_S = 0.2


def preflight(
    config: Config, folder: RunFolder, hosts: Sequence[str], node: int, meeting: str, within_s: float = LATEST_S
) -> Verdict | None:
    """Called on every node of a job before anything else: all take part, node 0 judges and writes preflight/<meeting>.json. Every node
    gets the verdict, whose `enforce` refuses; None on another one that hears nothing of node 0.

    hosts: of the allocation, by place; node: the place of this one; meeting: a name for this start of this job, the same on each node
    and never used before in this run folder. Raises UserError when the run folder is not there, or cannot be written, on this node.
    """
    if not folder.config.exists():
        raise UserError("paths.run", str(folder.root), f"is not to be seen on {host_here()}; name a folder that every node shares")
    place, told = folder.preflight / meeting, folder.preflight / f"{meeting}.json"
    try:
        place.mkdir(parents=True, exist_ok=True)
        probes = take_part(config, place, node, len(hosts), within_s)
        if node:
            return find_verdict(told)
        verdict = judge(probes, hosts, config)
        write_whole(told, msgspec.json.encode(verdict))
        remove_tree(place)
    except OSError as error:
        raise UserError("paths.run", str(folder.root), f"cannot be written on {host_here()} ({error})") from error
    return verdict


def find_verdict(path: Path, within_s: float = 10.0) -> Verdict | None:
    """Node 0 writes it right after the meeting."""
    try:
        found = asyncio.run(until(lambda: path.read_bytes() if path.exists() else None, _LOOK_EVERY_S, within_s))
    except TimeoutError:
        return None
    return msgspec.json.decode(found, type=Verdict)


def ask_here(config: Config, run: Path | None) -> tuple[Verdict, list[str]]:
    """This machine alone, as a run on it would. run: an existing run folder; None: where a new one would be made. Also: host names."""
    with _meeting_place(config, run) as place:
        probes = take_part(config, place, 0, 1)
    hosts = [probes[0].host]
    return judge(probes, hosts, config), hosts


def ask_on_slurm(config: Config, run: Path | None) -> tuple[Verdict, list[str]]:
    """Nodes like those the run would get, by a short job of their own. Raises UserError when SLURM refuses it."""
    nodes = config.cluster.slurm.nodes
    with _meeting_place(config, run) as place:
        store_config(config, place / CONFIG)
        print(f"asking {nodes} node{'s' * (nodes > 1)} by a short job", file=sys.stderr, flush=True)
        said = srun(config, [sys.executable, "-m", "gyre_hpc.launch.preflight", "--meeting", str(place), "--nodes", str(nodes)])
        try:
            probes = msgspec.json.decode((place / PROBES).read_bytes(), type=dict[int, NodeProbe])
        except FileNotFoundError:
            remedy = f"the first node of the job could not write there: {said or 'it said nothing'}; name a folder that all nodes share"
            raise UserError("paths.run", str(place.parent), remedy) from None
    hosts = [probes[node].host if node in probes else "" for node in range(nodes)]
    return judge(probes, hosts, config), hosts


def ask(config: Config, run: Path | None) -> tuple[Verdict, list[str]]:
    """Wherever the run would be."""
    return ask_on_slurm(config, run) if config.cluster.kind is ClusterKind.slurm else ask_here(config, run)


def main_of_node(meeting: Path, node: int, nodes: int) -> int:
    """What the srun starts on each node."""
    probes = take_part(load_config(meeting / CONFIG), meeting, node, nodes)
    if node == 0:
        (meeting / PROBES).write_bytes(msgspec.json.encode(probes))
    return 0


@contextlib.contextmanager
def _meeting_place(config: Config, run: Path | None) -> Iterator[Path]:
    """A folder of its own where the run folder is or would be, gone afterwards together with what had to be made for it."""
    above = run if run is not None else outputs_above(config)
    made = next((path for path in [above, *above.parents][::-1] if not path.exists()), None)
    try:
        above.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=".preflight-", dir=above))
    except OSError as error:
        raise UserError("paths.run", str(above), f"cannot be written ({error}); name a folder that you can write to") from error
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        for path in [above, *above.parents] if made is not None else []:
            with contextlib.suppress(OSError):  # somebody has used it by now
                path.rmdir()
            if path == made:
                break
