"""The controller: the batch machine in its shell. Rank 0 of the run; touches no tensor, loads no torch."""

import asyncio
import logging
import sys
from pathlib import Path

import gyre_hpc.chat
import gyre_hpc.suites
from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.schema import Config
from gyre_hpc.control.checkpoints import Checkpoints
from gyre_hpc.control.journal_tail import JournalTail
from gyre_hpc.control.notes import Notes
from gyre_hpc.control.preparing import Preparing
from gyre_hpc.control.satellites import SatelliteKeeper
from gyre_hpc.control.settings import batch_settings
from gyre_hpc.control.status import StatusWriter
from gyre_hpc.control.warm_key import source_digest, warm_folder
from gyre_hpc.machines.base import Restarted
from gyre_hpc.machines.batch import BatchMachine, actions
from gyre_hpc.machines.batch.records import Record
from gyre_hpc.machines.batch.satellites import KeepSatellites
from gyre_hpc.machines.membership import Membership
from gyre_hpc.observability.tracker import make_tracker
from gyre_hpc.shell import stacks
from gyre_hpc.shell.arguments import Birth, read_birth
from gyre_hpc.shell.descriptors import raise_descriptor_limit
from gyre_hpc.shell.events import open_events
from gyre_hpc.shell.host import Host
from gyre_hpc.shell.lifetime import end_with_parent
from gyre_hpc.shell.log import MachineLog, read_log
from gyre_hpc.shell.node_map import read_map
from gyre_hpc.shell.refusal import refusing
from gyre_hpc.suites import blind_passes

log = logging.getLogger(__name__)


def main() -> int:
    """Entry of `python -m gyre_hpc.processes.controller`; 2 when it cannot work with what it finds."""
    # Two connections for each cell.
    raise_descriptor_limit()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return refusing(lambda: asyncio.run(serve(read_birth())))


async def serve(birth: Birth) -> None:
    """Run until the supervisor ends us."""
    stacks.of_birth(birth)
    config, folder = birth.config, birth.folder
    records, machine_log = open_logs(birth)
    preparing = Preparing(config, JournalTail(folder.journal))
    status = StatusWriter(folder.status, experiment=config.experiment, attempt=birth.attempt)
    notes = Notes(open_events(folder, birth.name, birth.attempt), make_tracker(config.tracker, folder.tensorboard))
    checkpoints = Checkpoints(folder, warm_folder(config, cache_folder(config), _sources()), notes.note)
    host = Host(
        name=birth.name,
        attempt=birth.attempt,
        run_token=birth.run_token,
        addresses=birth.addresses,
        actions={
            actions.FindCheckpoint: checkpoints.find,
            actions.FindWarmStart: checkpoints.find_warm,
            actions.StoreWarmStart: checkpoints.store_warm,
            actions.PrepareGroup: preparing.prepare_group,
            actions.PrepareWarm: preparing.prepare_warm,
            actions.ForgetMicroBatches: preparing.forget,
            actions.WriteStatus: status.write,
            KeepSatellites: SatelliteKeeper(folder.root).keep,
        },
        note=notes.note,
        machine_log=machine_log,
        record_to=folder.inputs(birth.name, birth.attempt) if config.debug.record_inputs else None,
    )
    preparing.add_to(host.app)
    end_with_parent(host.end)
    url = await host.bind(config.network.interface)
    runners = tuple(read_map(config, folder, birth.attempt).runners)
    settings = batch_settings(config, controller_url=url, attempt=birth.attempt, incarnation=birth.incarnation, runners=runners)
    if birth.attempt == birth.incarnation == 1:
        note_blind(config, notes)
    host.run(BatchMachine(settings, Membership(birth.register(url)), birth.run_token), Restarted(tuple(records)))
    reason = await host.ended
    log.info("controller ends: %s", reason)
    await host.close()
    notes.close()


def note_blind(config: Config, notes: Notes) -> None:
    """How far guessing gets on the held-out tasks of the run."""
    total = config.evaluation.tasks
    passed = blind_passes(config.suite, config.seed, total) if total else None
    if passed is not None:
        notes.note("blind", {"passed": passed, "total": total, "pass_rate": passed / total})


def open_logs(birth: Birth) -> tuple[list[object], MachineLog]:
    """Records of all attempts, oldest first, and this attempt's log open for appending."""
    records: list[object] = []
    for attempt in range(1, birth.attempt):
        records += read_log(birth.folder.machine_log(birth.name, attempt), Record)[0]
    path = birth.folder.machine_log(birth.name, birth.attempt)
    own, whole = read_log(path, Record)
    return records + own, MachineLog(path, whole)


def _sources() -> dict[str, str]:
    """Code that decides what the scripted executions look like."""
    rooms = {"chat": gyre_hpc.chat, "suites": gyre_hpc.suites}
    return {name: source_digest(Path(str(room.__file__)).parent) for name, room in rooms.items()}


if __name__ == "__main__":
    sys.exit(main())
