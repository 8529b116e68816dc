"""A cell under torchrun on the supervisor's leash: two ranks, loopback only, nothing left after any death."""

import os
import signal
from pathlib import Path

from gyre_hpc.config.schema import ClusterConfig, Config
from gyre_hpc.protocol.supervision import RestartCell
from tests.fakes.live_run import LiveRun, descendants, listening_addresses, wait_dead, wait_for


def ranked_config() -> Config:
    return Config(cluster=ClusterConfig(cells=1, ranks_per_cell=2))


def ranks_of(run: LiveRun) -> set[int]:
    """Both ranks, once they are tied to their agent."""
    wait_for(lambda: len(list(run.folder.root.glob("world-cell-0-*"))) == 2, "both ranks")
    return descendants(run.pid("cell-0"))


def test_ranks_share_a_world_listen_on_loopback_only_and_die_with_their_agent(tmp_path: Path):
    with LiveRun(tmp_path, ranked_config()) as run:
        run.wait_registered()
        agent, ranks = run.pid("cell-0"), ranks_of(run)
        worlds = sorted((tmp_path / f"world-cell-0-{rank}").read_text() for rank in (0, 1))
        assert worlds == ["0 2 127.0.0.1", "1 2 127.0.0.1"]
        assert listening_addresses({agent, *ranks}) == {"0100007F"}
        os.kill(agent, signal.SIGKILL)
        wait_dead(ranks)
        wait_for(lambda: run.entries()["cell-0"].lost, "loss of cell-0")
        run.post(RestartCell("cell-0", 1, "lost"))
        wait_for(lambda: run.entries()["cell-0"].incarnation == 2 and run.entries()["cell-0"].url, "second rendezvous")


def test_a_killed_rank_takes_its_cell_with_it(tmp_path: Path):
    with LiveRun(tmp_path, ranked_config()) as run:
        run.wait_registered()
        ranks = ranks_of(run)
        os.kill(min(ranks), signal.SIGKILL)
        wait_for(lambda: run.entries()["cell-0"].lost, "loss of cell-0")
        wait_dead(ranks)


def test_killing_the_supervisor_leaves_no_rank_even_if_one_hangs(tmp_path: Path):
    with LiveRun(tmp_path, ranked_config()) as run:
        run.wait_registered()
        pids = descendants(run.process.pid)
        os.kill(max(ranks_of(run)), signal.SIGSTOP)
        os.kill(run.process.pid, signal.SIGKILL)
        wait_dead(pids)


def test_sigterm_ends_a_cell_in_order(tmp_path: Path):
    with LiveRun(tmp_path, ranked_config()) as run:
        run.wait_registered()
        pids = descendants(run.process.pid)
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(timeout=60) == 130
        wait_dead(pids)
        assert (tmp_path / "ended-cell-0-1").exists(), "the rank was told to end and could do so in order"
        assert "Traceback" not in run.folder.log("cell-0").read_text()
