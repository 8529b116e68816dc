"""A cell of two nodes, both of them this machine: one server in two parts, each held by its node's first rank."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from gyre_hpc.config.engine_schema import EngineConfig, EngineKind
from gyre_hpc.config.schema import ClusterConfig
from gyre_hpc.engines.sglang.process_table import ranks_below
from gyre_hpc.observability.process_tree import signal_quietly
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_batch import CellState
from gyre_hpc.shell.arguments import arguments
from tests.fakes.cell_stage import Stage, tiny_config
from tests.fakes.live_run import is_alive, parent, wait_dead, wait_for
from tests.fakes.sglang_here import sglang_config

pytestmark = [pytest.mark.timeout(900), pytest.mark.rare]
START_S = 400.0
BOUND = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
"""SGLang binds each rank to a core of its own, and wants to be told where there are fewer nodes of memory than ranks."""


def start_rank(stage: Stage, rank: int, port: int) -> None:
    """As torchrun on a node of its own would."""
    torchrun = {
        "RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": rank, "GROUP_WORLD_SIZE": 2,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
    }  # fmt: skip
    tail = arguments(name="cell-0", run=str(stage.folder.root), attempt=1, incarnation=0, supervisor_url=stage.url)
    name = "cell-0" if rank == 0 else "cell-0-follower"
    argv = [sys.executable, "-m", "gyre_hpc.processes.cell", *tail]
    stage.processes[name] = stage._spawn(name, argv, {key: str(value) for key, value in torchrun.items()})


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_the_first_rank_of_each_node_holds_its_part_of_the_server_and_the_loss_of_any_is_told(tmp_path: Path):
    engine = EngineConfig(kind=EngineKind.sglang, kv_tokens=512, sglang=sglang_config(environ=BOUND))
    config = tiny_config(engine=engine, cluster=ClusterConfig(cells=1, ranks_per_cell=2))
    with Stage(tmp_path, config) as stage:
        port = free_port()
        for rank in (0, 1):
            start_rank(stage, rank, port)
        wait_for(lambda: "cell-0" in stage.registered or stage._ended("cell-0"), "registration", START_S)
        stage.wait_registered("cell-0")
        stage.order("cell-0", term=1, role=Role.rollout, is_core=True, version=Version(0, 0), update=0)
        stage.until("cell-0", lambda report: report.state is CellState.rollout, "serving version 0.0")
        answer = stage.generate("cell-0")
        assert len(answer["output_ids"]) == 8 and answer["meta_info"]["weight_version"] == "0.0"
        report = stage.until("cell-0", lambda report: len(report.engine_pids) > 4, "the servers of both nodes")
        ranks = [stage.processes[name].pid for name in ("cell-0", "cell-0-follower")]
        keepers = [pid for pid in report.engine_pids if parent(pid) in ranks]
        assert report.pids == tuple(ranks) == tuple(parent(keeper) for keeper in keepers)
        assert [memory.rank for memory in report.memory] == [0, 1]
        other = next(iter(ranks_below(keepers[1])))
        os.kill(other.pid, signal.SIGKILL)
        broken = stage.until("cell-0", lambda report: report.broken, "the loss is told")
        assert "SGLang" in broken.broken
    left = {pid for pid in report.engine_pids if is_alive(pid)}
    for keeper in left & set(keepers):
        signal_quietly(keeper, signal.SIGTERM)
    wait_dead(left)
