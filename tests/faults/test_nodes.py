"""Runs over several nodes, each a supervisor of its own on one machine: they end well, lose a node, and outlive a pause of one."""

import os
import signal
import socket
from pathlib import Path

import pytest

from gyre_hpc.machines.supervision import NODE_LOST
from gyre_hpc.protocol.node_map import CellPlace
from tests.fakes.live_run import listening_addresses, wait_dead, wait_for
from tests.fakes.nodes_run import NodesRun, address, nodes_of
from tests.fakes.whole_run import unended

UPDATES = 3
TIMED = (
    "+experiment=rehearsal", "algo.groups_per_batch=3", "algo.group_size=4", f"algo.updates={UPDATES}", "engine.time_scale=4",
    "cluster.slurm.node_silence_s=20",
)  # fmt: skip
pytestmark = pytest.mark.timeout(300)


def in_mid_run(run: NodesRun) -> None:
    """One update is made, executions for the next are running."""
    run.wait_event("applied")
    first = run.events("applied")[0].time
    run.wait_event("call_ended", lambda event: event.time > first)


def expect_whole(run: NodesRun) -> None:
    summary = run.summary()
    assert (summary["updates"], summary["exit_code"], summary["attempts"]) == (UPDATES, 0, 1)
    assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0)
    assert not run.events("token_fault") and not unended(run.events())
    assert len(run.consumed()) == len(set(run.consumed())) == UPDATES * 3 * 4
    wait_for(lambda: not run.processes(), "the end of every process of the run")


def where_it_listens(run: NodesRun, node: int) -> set[str]:
    """IPv4 addresses in dots, IPv6 in hexadecimal."""
    pids = {run.nodes[f"supervisor-{node}"].pid, *run.below(node)}
    found = listening_addresses(pids)
    return {socket.inet_ntoa(bytes.fromhex(one)[::-1]) if len(one) == 8 else one for one in found}


def test_a_run_over_three_nodes_goes_to_its_end_with_executions_on_all_runners(tmp_path: Path):
    with NodesRun(tmp_path, nodes_of(3), *TIMED) as run:
        run.wait_event("applied")
        for node in range(3):
            assert where_it_listens(run, node) == {address(node)}
        assert run.folder.start(1).stat().st_mode & 0o777 == 0o600
        assert run.wait_codes() == {"supervisor-0": 0, "supervisor-1": 0, "supervisor-2": 0}
        expect_whole(run)
        runners = {event.process for event in run.events("execution_began")} - {"controller"}
        assert runners == {"runner-0", "runner-1", "runner-2"}
        assert not list(run.scratch.iterdir()), "the scratch folders of all nodes are gone"


def test_a_killed_node_is_given_up_and_the_run_goes_on_to_its_end(tmp_path: Path):
    with NodesRun(tmp_path, nodes_of(3), *TIMED) as run:
        in_mid_run(run)
        below = run.below(2)
        assert len(below) >= 2
        run.signal_node(2, signal.SIGKILL)
        wait_dead(below)
        codes = run.wait_codes()
        assert (codes["supervisor-0"], codes["supervisor-1"]) == (0, 0)
        expect_whole(run)
        assert [event.fields["node"] for event in run.events("node_lost")] == ["supervisor-2"]
        gone = {entry.process for entry in run.entries() if entry.aside}
        assert gone == {"supervisor-2", "cell-2", "runner-2"}


@pytest.mark.rare
def test_a_pause_of_a_nodes_supervisor_shorter_than_its_fence_changes_nothing(tmp_path: Path):
    with NodesRun(tmp_path, nodes_of(3), *TIMED, "algo.updates=6") as run:
        in_mid_run(run)
        below = run.below(2)
        run.signal_node(2, signal.SIGSTOP)
        silent = len(run.events("cell_lost"))
        wait_for(lambda: len(run.events("applied")) >= 3, "two more updates")
        run.signal_node(2, signal.SIGCONT)
        assert run.wait_codes()["supervisor-2"] == 0 and below
        assert len(run.events("cell_lost")) == silent == 0 and not run.events("node_fenced", "node_lost")


def test_a_node_that_hears_nothing_beyond_its_fence_ends_all_that_lives_on_it(tmp_path: Path):
    with NodesRun(tmp_path, nodes_of(3), *TIMED, "algo.updates=60") as run:
        in_mid_run(run)
        below = run.below(2)
        run.signal_node(2, signal.SIGSTOP)
        run.wait_event("node_lost", within_s=60.0)
        run.signal_node(2, signal.SIGCONT)
        assert run.nodes["supervisor-2"].wait(60) == NODE_LOST
        wait_dead(below)
        assert run.process.poll() is None, "the run goes on without it"


def test_a_run_that_is_told_to_stop_ends_on_all_nodes(tmp_path: Path):
    with NodesRun(tmp_path, nodes_of(2), *TIMED, "algo.updates=60") as run:
        in_mid_run(run)
        for process in run.nodes.values():  # as a job's end reaches every node
            process.terminate()
        assert run.wait_codes() == {"supervisor-0": 130, "supervisor-1": 0}
        wait_for(lambda: not run.processes(), "the end of every process of the run")


def test_nodes_without_supervisor_0_end_what_they_run(tmp_path: Path):
    with NodesRun(tmp_path, nodes_of(3), *TIMED, "algo.updates=60") as run:
        in_mid_run(run)
        run.signal_node(0, signal.SIGKILL)
        assert [run.nodes[f"supervisor-{node}"].wait(60) for node in (1, 2)] == [NODE_LOST, NODE_LOST]
        wait_for(lambda: not run.processes(), "the end of every process of the run")


@pytest.mark.rare
def test_a_node_that_nobody_planned_brings_a_cell_and_may_vanish(tmp_path: Path):
    joiner = "supervisor-j77n0"
    with NodesRun(tmp_path, nodes_of(2), *TIMED, "algo.updates=12") as run:
        run.wait_event("applied")
        run.join(joiner, cells=1, index=2)
        run.wait_event("process_registered", lambda event: event.fields["process"] == "cell-2")
        run.wait_event("call_ended", lambda event: "cell-2" in event.fields["cells"])
        below = run.below(joiner)
        assert below
        run.nodes[joiner].kill()
        wait_dead(below)
        assert run.wait_codes(200.0) == {"supervisor-0": 0, "supervisor-1": 0, joiner: -signal.SIGKILL}
        summary = run.summary()
        assert (summary["updates"], summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (12, 0, 0)
        assert not run.events("token_fault") and not unended(run.events())
        assert [event.fields["node"] for event in run.events("node_joined")] == [joiner]


SPANNING = nodes_of(
    2, CellPlace("cell-0", ("supervisor-0", "supervisor-1"), (0,)), CellPlace("cell-1", ("supervisor-1", "supervisor-0"), (1,))
)
EMBEDDED = (
    "+experiment=quickstart_short", "cluster.ranks_per_cell=2", "algo.updates=2", "algo.groups_per_batch=3", "algo.group_size=4",
    "warm_start.executions=0", "warm_start.epochs=0", "evaluation.before=false", "evaluation.after=false", "transport.deadline_s=15",
)  # fmt: skip


def ranks_on(run: NodesRun, node: int, cell: str) -> dict[int, int]:
    """Rank -> pid of the cell's ranks on a node, as torchrun numbered them."""
    found = {}
    for pid in run.below(node):
        try:
            environment = dict(pair.partition(b"=")[::2] for pair in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:  # gone
            continue
        if cell.encode() in argv and b"RANK" in environment and b"gyre_hpc.processes.cell_agent" not in argv:
            found[int(environment[b"RANK"])] = pid
    return found


@pytest.mark.timeout(500)
def test_cells_over_two_nodes_are_numbered_as_the_map_says_and_lose_all_parts_with_one(tmp_path: Path):
    with NodesRun(tmp_path, SPANNING, *EMBEDDED) as run:
        run.wait_event("first_call", within_s=200.0)
        assert [set(ranks_on(run, node, "cell-0")) for node in (0, 1)] == [{0}, {1}]
        assert [set(ranks_on(run, node, "cell-1")) for node in (0, 1)] == [{1}, {0}], "also against the order of addresses"
        for node in (0, 1):
            assert where_it_listens(run, node) == {address(node)}
        follower, leader = ranks_on(run, 0, "cell-1")[1], ranks_on(run, 1, "cell-1")[0]
        os.kill(follower, signal.SIGKILL)
        wait_dead({follower, leader})
        run.wait_event("process_started", lambda event: event.fields == {"process": "cell-1", "incarnation": 2})
        assert run.wait_codes(300.0) == {"supervisor-0": 0, "supervisor-1": 0}
        summary = run.summary()
        assert (summary["updates"], summary["exit_code"]) == (2, 0)
        assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0)
        wait_for(lambda: not run.processes(), "the end of every process of the run")
