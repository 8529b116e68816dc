"""Configuration is composed and checked once, at the door."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gyre_hpc.config.changes import CHANGEABLE
from gyre_hpc.config.compose import compose_config, experiments, known_keys
from gyre_hpc.config.schema import Advantage, Config, EngineKind, SandboxKind, SchedulerMode, Staleness, TrainerKind
from gyre_hpc.config.stored import load_config, store_config
from gyre_hpc.config.validate import value_of
from gyre_hpc.errors import UserError

ROOT = Path(__file__).resolve().parents[3]


def test_the_default_is_the_quickstart():
    config = compose_config()
    assert (config.experiment, config.algo.updates, config.algo.groups_per_batch, config.algo.group_size) == ("quickstart", 12, 12, 8)
    scheduler = config.scheduler
    assert (scheduler.mode, scheduler.staleness, scheduler.max_staleness) == (SchedulerMode.elastic, Staleness.wait, 1)
    assert (scheduler.lead_factor, scheduler.lead_floor_s, scheduler.dwell_s) == (20, 0, 0.5)


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")))
def test_every_experiment_composes_and_names_itself(name: str):
    assert name in experiments()
    assert compose_config([f"+experiment={name}"]).experiment == name


@pytest.mark.parametrize(
    "option", sorted(str(path.relative_to(ROOT / "conf").with_suffix("")) for path in (ROOT / "conf").glob("*/*.yaml"))
)
def test_every_file_in_conf_composes(option: str):
    group, _, name = option.rpartition("/")
    plus = "+" if group == "experiment" else ""
    both = ["engine=timed", "trainer=timed"] if name == "timed" else []
    compose_config([f"{plus}{group}={name}", *[other for other in both if not other.startswith(group)]])


def test_short_quickstart_is_the_quickstart_with_half_the_updates():
    whole, half = compose_config(), compose_config(["+experiment=quickstart_short"])
    assert half.algo.updates * 2 == whole.algo.updates
    half.algo.updates, half.experiment = whole.algo.updates, whole.experiment
    assert half == whole


def test_scheduler_modes_are_spelled_as_people_say_them():
    modes = {name: compose_config([f"scheduler={name}"]).scheduler.mode for name in ("elastic", "colocate", "colocate_carry", "async")}
    assert modes == {
        "elastic": SchedulerMode.elastic,
        "colocate": SchedulerMode.colocate,
        "colocate_carry": SchedulerMode.colocate_carry,
        "async": SchedulerMode.async_split,
    }


def test_groups_choose_kinds():
    config = compose_config(["engine=timed", "trainer=timed", "sandbox=none", "algo=grpo_no_std"])
    kinds = (config.engine.kind, config.trainer.kind, config.sandbox.kind, config.algo.advantage)
    assert kinds == (EngineKind.timed, TrainerKind.timed, SandboxKind.none, Advantage.grpo_no_std)


@pytest.mark.parametrize(
    ("overrides", "field", "remedy"),
    [
        (["algo.updates=many"], "algo.updates", "write a whole number"),
        (["algo.updates=1.5"], "algo.updates", "write a whole number"),
        (["trainer.lr=fast"], "trainer.lr", "write a number"),
        (["journal.fsync=maybe"], "journal.fsync", "true or false"),
        (["launch.force=trainer.lr"], "launch.force", "launch.force=[trainer.lr]"),
        (["harness.environment=a"], "harness.environment", "harness.environment={A:1,B:2}"),
        (["seed=null"], "seed", "leave it out"),
        (["seed=1,2"], "seed", "add -m"),
        (["+cluster=slurm"], "cluster", "leave the + out"),
        (["algo.updats=3"], "algo.updats", "did you mean algo.updates? "),
        (["schedular=elastic"], "schedular", "did you mean scheduler? "),
        (["sede=1"], "sede", "did you mean seed "),
        (["cluster.nodes=2"], "cluster.nodes", "did you mean cluster.slurm.nodes? "),
        (["+algo.foo=3"], "algo.foo", "no such key"),
        (["scheduler=nope"], "scheduler", "colocate_carry"),
        (["experiment=deepswe"], "experiment", "+experiment=NAME"),
        (["+experiment=nope"], "experiment", "deepswe"),
        (["scheduler.mode=nope"], "scheduler.mode", "elastic"),
        (["algo.updates"], "command line", "KEY=VALUE"),
        (["algo=3"], "command line", "GROUP=NAME"),
        (["+seed=3"], "seed", "leave the + out"),
        (["~cluster.slurm.options.nice"], "cluster.slurm.options.nice", "nothing of that name"),
        (["cluster.slurm.option=3"], "cluster.slurm.option", "cluster.slurm.options"),
        (["cluster=slurm", "cluster.slurm.options={nice: {a: b}}"], "cluster.slurm.options.nice", "text"),
        (["launch.satellites=2"], "launch.satellites", "cluster=slurm"),
        (["launch.dry_run=true"], "launch.dry_run", "cluster=slurm"),
    ],
)
def test_a_bad_override_names_field_and_remedy(overrides: list[str], field: str, remedy: str):
    with pytest.raises(UserError) as caught:
        compose_config(overrides)
    assert caught.value.field == field
    assert remedy in caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("plus", ["", "+", "++"])
@pytest.mark.parametrize("override", ["cluster.slurm.options={nice: 100}", "cluster.slurm.options.nice=100"])
def test_a_name_below_a_mapping_is_everybodys_own_and_needs_no_plus(plus: str, override: str):
    assert compose_config([plus + override]).cluster.slurm.options == {"nice": "100"}
    own = compose_config([f"{plus}harness.environment.A=1", f"{plus}engine.sglang.environ={{B: x}}"])
    assert (own.harness.environment, own.engine.sglang.environ) == ({"A": "1"}, {"B": "x"})


def test_a_conf_where_the_user_stands_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "conf" / "algo").mkdir(parents=True)
    (tmp_path / "conf" / "algo" / "grpo.yaml").write_text("advantage: grpo\nupdates: 77\n")
    (tmp_path / "conf" / "algo" / "mine.yaml").write_text("updates: 78\n")
    monkeypatch.chdir(tmp_path)
    assert compose_config().algo.updates == 77
    assert compose_config(["algo=mine"]).algo.updates == 78
    assert compose_config(["scheduler=async"]).scheduler.mode is SchedulerMode.async_split


def test_a_config_goes_through_yaml_unchanged(tmp_path: Path):
    config = compose_config(["+experiment=deepswe", "seed=7"])
    store_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == config


def test_resume_takes_the_stored_config_and_what_may_change(tmp_path: Path):
    store_config(compose_config(["seed=5", "algo.group_size=4"]), tmp_path / "config.yaml")
    config = compose_config([f"resume={tmp_path}", "algo.updates=20", "tracker.tensorboard=false"])
    assert (config.seed, config.algo.group_size, config.algo.updates, config.tracker.tensorboard) == (5, 4, 20, False)
    assert config.resume == config.paths.run == str(tmp_path)


@pytest.mark.parametrize(
    "override",
    [
        "transport.kv=none", "transport.kv_protocol=rdma", "transport.kv_budget_s=0.5", "trainer.memory_limit_mb=64",
        "engine.sglang.orphan_s=5.0", "engine.sglang.environment=/srv/sglang", "engine.sglang.launcher=/srv/start.py",
    ],
)  # fmt: skip
def test_what_stopped_a_run_without_touching_its_numbers_may_change_on_resume(tmp_path: Path, override: str):
    store_config(compose_config(), tmp_path / "config.yaml")
    key, _, value = override.partition("=")
    assert str(value_of(compose_config([f"resume={tmp_path}", override]), key)) == value


@pytest.mark.parametrize(
    "override",
    ["seed=1", "algo.group_size=2", "scheduler=async", "+experiment=deepswe", "model.num_layers=2", "engine.sglang.dtype=float16"],
)
def test_resume_refuses_what_decides_the_numbers(tmp_path: Path, override: str):
    store_config(compose_config(), tmp_path / "config.yaml")
    with pytest.raises(UserError, match="cannot change on resume"):
        compose_config([f"resume={tmp_path}", override])


def test_resume_of_nothing_says_so(tmp_path: Path):
    with pytest.raises(UserError, match="name a run folder"):
        compose_config([f"resume={tmp_path}"])


def test_every_changeable_pattern_names_a_key():
    from fnmatch import fnmatchcase

    keys = list(known_keys(Config))
    assert [pattern for pattern in CHANGEABLE if not any(fnmatchcase(key, pattern) for key in keys)] == []


def _launch(cwd: Path, *arguments: str, task: str = "return 0") -> subprocess.CompletedProcess[str]:
    """launch.py's door around a task of our own, in a process of its own."""
    program = (
        "import sys\nfrom gyre_hpc.config.door import hydra_main\n"
        f"@hydra_main\ndef launch(config):\n    {task}\n"
        "import atexit\natexit.register(lambda: print('torch' if 'torch' in sys.modules else 'light'))\nlaunch()\n"
    )
    path = cwd / "program.py"
    path.write_text(program)
    return subprocess.run(
        [sys.executable, str(path), *arguments], cwd=cwd, check=False, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def test_help_whose_reader_is_gone_ends_quietly(tmp_path: Path):
    """`launch.py --help | head`: what does not fit into the pipe any more fails in the midst of Hydra's printing."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), "--help"], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_and_composing_load_no_torch(tmp_path: Path):
    for arguments in (["--help"], ["--cfg", "job"], ["seed=1"]):
        done = _launch(tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip().endswith("light")


def test_a_bad_override_is_exit_code_2_one_line_and_no_traceback(tmp_path: Path):
    for arguments in (["algo.updats=1"], ["scheduler=nope"], ["nonsense"], ["seed=-1"], ["-m", "--run"], ["resume=/nowhere"]):
        done = _launch(tmp_path, *arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py"]


def test_who_names_a_folder_too_high_to_go_on_is_told_the_runs_below_it(tmp_path: Path):
    store_config(compose_config(), tmp_path / "outputs" / "1" / "config.yaml")
    (tmp_path / "outputs" / "1" / "state").mkdir()
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), "resume=outputs"], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    told = done.stderr.splitlines()
    assert told[0] == "resume='outputs': name a run folder, one that holds config.yaml; one lies below it:"
    assert told[1].startswith("  outputs/1  never started")
    assert len(told) == 2


def test_a_run_litters_nothing(tmp_path: Path):
    assert _launch(tmp_path, "seed=3").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py"]


def test_a_sweep_runs_every_combination_and_ends_with_the_worst_code(tmp_path: Path):
    done = _launch(
        tmp_path, "-m", "seed=0,1", "scheduler=elastic,async", task="print(config.seed, config.scheduler.mode.name); return config.seed"
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[:4] == ["0 elastic", "0 async_split", "1 elastic", "1 async_split"]


def test_a_bug_of_the_task_shows_its_traceback(tmp_path: Path):
    done = _launch(tmp_path, task="raise ValueError('a bug')")
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "a bug" in done.stderr


def test_launch_is_a_door_and_nothing_else():
    source = (ROOT / "launch.py").read_text()
    assert len(source.splitlines()) <= 15
    top = [node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert all("launch" not in ast.unparse(node) for node in top), "gyre_hpc.launch is imported after composing"
