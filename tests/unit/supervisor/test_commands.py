"""Command lines of children, and attempts."""

from pathlib import Path

from gyre_hpc.config.schema import ClusterConfig, Config, EngineConfig, EngineKind, TrainerConfig, TrainerKind, WarmStartConfig
from gyre_hpc.machines.base import Restarted, SetTimer
from gyre_hpc.machines.supervision import SupervisionMachine
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
    ]


def test_children_follow_from_the_configuration():
    config = Config(cluster=ClusterConfig(cells=2, gateways=2), warm_start=WarmStartConfig(executions=5))
    settings = settings_for(config, 1)
    assert settings.services == ("controller", "gateway-0", "gateway-1", "runner-0")
    assert settings.cells == ("cell-0", "cell-1") and settings.extras == ("scripted-0",)
    assert settings_for(Config(warm_start=WarmStartConfig(executions=0)), 1).extras == ()


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
