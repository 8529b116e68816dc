"""What a launch cost is told from events alone, and names the slowest rank."""

from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.report.startup import launch_overhead
from gyre_hpc.report.story import read_story
from tests.unit.report.made_up_run import Tape


def birth(tape: Tape, at: float, rank: int, host: str, imports: float, incarnation: int = 1) -> None:
    tape.note(at, "startup", process="cell-0", incarnation=incarnation, rank=rank, host=host, steps={"imports": imports, "engine": 1.0})


def test_the_slowest_rank_and_the_first_token_are_told(tmp_path: Path):
    folder = RunFolder(tmp_path)
    store_config(Config(), folder.config)
    supervisor, cell, other, gateway = Tape("supervisor-0"), Tape("cell-0"), Tape("cell-0.1"), Tape("gateway-0")
    supervisor.note(0, "process_started", process="cell-0", incarnation=1)
    supervisor.note(5, "process_registered", process="cell-0", incarnation=1, pid=7)
    supervisor.note(60, "process_registered", process="cell-0", incarnation=2, pid=8)
    birth(cell, 4, 0, "n1", 2.0)
    birth(cell, 59, 0, "n1", 50.0, incarnation=2)  # a later start is no launch
    birth(other, 4.5, 1, "n2", 3.5)
    gateway.note(7, "first_token", call="c")
    gateway.note(70, "first_token", call="d")
    for tape in (supervisor, cell, other, gateway):
        tape.write(folder)
    told = launch_overhead(read_story(tmp_path))
    assert told["first_token_s"] == 7
    assert told["registered_s"] == 5
    assert told["steps"] == {"imports": 2.75, "engine": 1.0}
    assert told["slowest"]["imports"] == {"rank": "cell-0.1", "host": "n2", "seconds": 3.5}


def test_a_run_without_events_says_nothing(tmp_path: Path):
    store_config(Config(), RunFolder(tmp_path).config)
    assert launch_overhead(read_story(tmp_path)) == {}
