"""The machines of a run once more, built as the process mains build them, out of its folder and the recordings in it."""

from collections.abc import Iterable, Iterator
from typing import Any

from gyre_hpc.cell.parts import cell_settings
from gyre_hpc.cell.place import Place
from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import load_config
from gyre_hpc.control.settings import batch_settings
from gyre_hpc.machines.base import Effect, Input, Machine, Persist, Restarted, Send
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.call import GatewayMachine, GatewaySettings
from gyre_hpc.machines.cell import CellMachine
from gyre_hpc.machines.execution import RunnerMachine
from gyre_hpc.machines.member import Member
from gyre_hpc.machines.membership import Membership
from gyre_hpc.machines.supervision import SupervisionMachine
from gyre_hpc.protocol.supervision import Register
from gyre_hpc.protocol.to_batch import CellReport
from gyre_hpc.runner.run import settings_of
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.shell.recorder import read_inputs
from gyre_hpc.supervisor.commands import settings_for

Told = tuple[float, Input, list[Effect]]


def lives(folder: RunFolder, process: str, attempt: int = 1) -> Iterator[list[Told]]:
    """Recordings of `process`, one list per incarnation: each begins with Restarted."""
    life: list[Told] = []
    for told in read_inputs(folder.inputs(process, attempt)):
        if isinstance(told[1], Restarted) and life:
            yield life
            life = []
        life.append(told)
    if life:
        yield life


def fresh(folder: RunFolder, process: str, life: list[Told], attempt: int = 1) -> Machine:
    """The machine of `process` as it was before its first input in `life`."""
    config = load_config(folder.config)
    kind = process.partition("-")[0]
    if kind == "supervisor":
        return SupervisionMachine(settings_for(config, attempt))
    register = _sent(life, Register)
    if kind == "controller":
        settings = batch_settings(config, controller_url=register.url, attempt=attempt, incarnation=register.incarnation)
        return BatchMachine(settings, Membership(register), folder.token.read_text().strip())
    if kind == "runner":
        return RunnerMachine(settings_of(config, process, register.incarnation), register)
    if kind == "gateway":
        stop_ids = create_chat_format(config.model).stop_ids
        return GatewayMachine(GatewaySettings.of(config, register=register, clock_offset_s=_clock_offset(life), stop_ids=stop_ids))
    if kind == "cell":
        report = _sent(life, CellReport)
        birth = Birth(
            name=process, attempt=attempt, incarnation=register.incarnation, supervisor_url="", folder=folder, config=config, run_token=""
        )
        place = Place(rank=0, world=config.cluster.ranks_per_cell)
        return CellMachine(cell_settings(birth, place, engine_url=report.engine_url, snapshot_url=report.snapshot_url), register)
    return Member(register)


def _effects(life: Iterable[Told]) -> Iterator[tuple[float, Effect]]:
    return ((now, effect) for now, _, effects in life for effect in effects)


def _sent(life: list[Told], kind: type) -> Any:
    """The first message of `kind`: it carries what only the live process knew, such as its URL."""
    return next(effect.message for _, effect in _effects(life) if isinstance(effect, Send) and isinstance(effect.message, kind))


def _clock_offset(life: list[Told]) -> float:
    """Unix minus monotonic time, whole milliseconds; 0 for a shard that wrote no record."""
    records = ((now, effect.record) for now, effect in _effects(life) if isinstance(effect, Persist))
    return next((round(float(record.time) - now, 3) for now, record in records), 0.0)
