"""Command lines of children, and attempts."""

from dataclasses import replace
from pathlib import Path

import pytest

from gyre_hpc.config.schema import ClusterConfig, Config, EngineConfig, EngineKind, TrainerConfig, TrainerKind, WarmStartConfig
from gyre_hpc.machines.base import Restarted, SetTimer
from gyre_hpc.machines.supervision import SupervisionMachine
from gyre_hpc.protocol.node_map import CellPlace, NodeMap, NodePlace
from gyre_hpc.supervisor.attempts import claim_attempt, highest_attempt
from gyre_hpc.supervisor.commands import Commands, settings_for


def commands(config: Config) -> Commands:
    return Commands(config=config, run="/runs/demo", scratch="/scratch/demo", attempt=3, supervisor_url="http://127.0.0.1:5")


def test_a_torch_cell_is_its_own_rendezvous_with_a_fixed_world_and_no_restarts():
    config = Config(cluster=ClusterConfig(ranks_per_cell=2))
    first, second = (commands(config).build("cell-1", incarnation) for incarnation in (1, 2))
    argv = first.argv

    def option(name: str, given: list[str] = argv) -> str:
        return given[given.index(name) + 1]

    assert (option("--nnodes"), option("--nproc-per-node"), option("--max-restarts")) == ("1", "2", "0")
    assert option("--log-dir") == "/scratch/demo/torchrun"
    assert option("--rdzv-id") == "demo-3-cell-1-1" != option("--rdzv-id", second.argv)
    assert first.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert argv[argv.index("--") + 1] == "gyre_hpc.processes.cell"


def test_each_part_of_a_cell_over_several_nodes_has_its_ranks_and_the_others_are_told_where_part_0_listens():
    config = Config(cluster=ClusterConfig(ranks_per_cell=6))
    config.network.interface = "10.0.0.7"
    here = replace(commands(config), parts={"cell-1": 3}, node="2")
    first, other = here.build("cell-1", 1).argv, here.build("cell-1", 1, 2, "10.0.0.5:7000").argv

    def options(argv: list[str]) -> tuple[str, ...]:
        names = ("--part", "--nnodes", "--nproc-per-node", "--rdzv-endpoint", "--local-addr")
        return tuple(argv[argv.index(name) + 1] for name in names)

    assert options(first) == ("0", "3", "2", "10.0.0.7:0", "10.0.0.7")
    assert options(other) == ("2", "3", "2", "10.0.0.5:7000", "10.0.0.7")
    assert first[first.index("--rdzv-id") + 1] == other[other.index("--rdzv-id") + 1]
    assert other[-4:] == ["--interface", "10.0.0.7", "--node", "2"]


def test_libraries_that_look_for_an_interface_are_told_the_jobs_unless_a_person_did(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "mine")
    told = replace(commands(Config()), card="ib0").build("cell-0", 1).environment
    assert told["NCCL_SOCKET_IFNAME"] == "=ib0" and "GLOO_SOCKET_IFNAME" not in told
    assert "NCCL_SOCKET_IFNAME" not in commands(Config()).build("cell-0", 1).environment


def test_neighbours_by_number_share_a_process_and_each_node_has_its_own():
    config = Config(engine=EngineConfig(kind=EngineKind.timed), trainer=TrainerConfig(kind=TrainerKind.timed))
    config.cluster.cells_per_process = 4
    built = [commands(config).build(f"cell-{number}", 1) for number in range(9)]
    names = [one.shared.name for one in built if one.shared is not None]
    assert names == ["cells-0"] * 4 + ["cells-1"] * 4 + ["cells-2"]
    assert built[0].argv == built[3].argv != built[4].argv and "gyre_hpc.processes.cells" in built[0].argv
    elsewhere = replace(commands(config), node="1").build("cell-1", 1)
    assert elsewhere.shared is not None and elsewhere.shared.name == "cells-1-0"
    assert commands(config).build("gateway-0", 1).shared is None


def test_a_timed_cell_loads_no_torchrun():
    config = Config(engine=EngineConfig(kind=EngineKind.timed), trainer=TrainerConfig(kind=TrainerKind.timed))
    argv = commands(config).build("cell-0", 1).argv
    assert argv[1:3] == ["-m", "gyre_hpc.processes.cell"]


def test_the_facts_of_birth_and_no_secret_are_on_the_command_line():
    argv = commands(Config()).build("gateway-1", 4).argv
    assert argv[1:3] == ["-m", "gyre_hpc.processes.gateway"]
    assert argv[3:] == [
        "--name",
        "gateway-1",
        "--run",
        "/runs/demo",
        "--attempt",
        "3",
        "--incarnation",
        "4",
        "--supervisor",
        "http://127.0.0.1:5",
        "--interface",
        "127.0.0.1",
    ]


def test_children_follow_from_the_configuration():
    config = Config(cluster=ClusterConfig(cells=2, gateways=2), warm_start=WarmStartConfig(executions=5))
    settings = settings_for(config, 1)
    assert settings.services == ("controller", "gateway-0", "gateway-1", "runner-0")
    assert settings.cells == ("cell-0", "cell-1") and settings.extras == ("scripted-0",)
    assert settings_for(Config(warm_start=WarmStartConfig(executions=0)), 1).extras == ()


def test_children_belong_where_the_map_of_nodes_puts_them():
    nodes = NodeMap(
        nodes=(NodePlace("supervisor-0", "n1"), NodePlace("supervisor-1", "n2")),
        cells=(CellPlace("cell-0", ("supervisor-0", "supervisor-1"), (0,)), CellPlace("cell-1", ("supervisor-1",), (1, 2))),
        runners={"runner-0": "supervisor-0", "runner-1": "supervisor-1"},
    )
    config = Config(cluster=ClusterConfig(cells=2, ranks_per_cell=2))
    config.cluster.slurm.node_silence_s = 50.0
    settings = settings_for(config, 1, nodes)
    assert settings.services == ("controller", "gateway-0", "runner-0", "runner-1") and settings.cells == ("cell-0", "cell-1")
    assert settings.places["cell-0"] == ("supervisor-0", "supervisor-1") and settings.places["runner-1"] == ("supervisor-1",)
    assert settings.hosts == {"supervisor-1": "n2"} and settings.nodes == ("supervisor-1",)
    assert settings.node_silence_ticks * settings.tick_s == 50.0


def test_a_cell_with_a_server_is_given_the_time_of_its_start_and_nobody_else_is():
    config = Config(cluster=ClusterConfig(cells=1, start_deadline_s=100.0))
    config.engine.kind, config.engine.sglang.start_deadline_s = EngineKind.sglang, 700.0
    began = SupervisionMachine(settings_for(config, 1)).handle(0.0, Restarted())
    deadlines = {effect.key: effect.after_s for effect in began if isinstance(effect, SetTimer)}
    assert (deadlines["start/cell-0/1"], deadlines["start/gateway-0/1"]) == (800.0, 100.0)


def test_attempts_count_up_and_two_claims_get_two_numbers(tmp_path: Path):
    attempts = tmp_path / "attempts"
    assert highest_attempt(attempts) == 0
    assert [claim_attempt(attempts), claim_attempt(attempts)] == [1, 2]
    (attempts / "notes").mkdir()
    (attempts / "10").mkdir()
    assert highest_attempt(attempts) == 10 and claim_attempt(attempts) == 11


def test_nccl_groups_write_what_they_did_beside_the_logs_when_one_misses_its_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TORCH_NCCL_DUMP_ON_TIMEOUT", raising=False)
    monkeypatch.setenv("TORCH_NCCL_TRACE_BUFFER_SIZE", "7")
    config = Config()
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT" not in commands(config).build("cell-0", 1).environment
    config.transport.backend = "nccl"
    told = commands(config).build("cell-1", 2).environment
    assert told["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == "/runs/demo/logs/cell-1-3-2.nccl-rank-"
    assert told["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1" and "TORCH_NCCL_TRACE_BUFFER_SIZE" not in told
