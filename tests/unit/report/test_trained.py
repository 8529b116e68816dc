"""What a run's weights were trained on, by the log of its controller."""

import asyncio
from pathlib import Path
from typing import Any

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.machines.batch.records import CommitIntended, Counted, GroupBegun, LineageBegun, Published
from gyre_hpc.protocol.identity import GroupId, Version
from gyre_hpc.report.trained import trained_groups
from gyre_hpc.shell.log import MachineLog


def group(number: int) -> GroupId:
    return GroupId("train", number // 2, number % 2)


def intend(update: int, *numbers: int) -> CommitIntended:
    return CommitIntended(update, f"hash-{update}", Version(0, update + 1), tuple(map(group, numbers)), len(numbers))


def publish(update: int, lineage: int = 0) -> Published:
    return Published(Version(lineage, update + 1), update)


async def write(folder: RunFolder, attempt: int, records: list[Any]) -> None:
    written = asyncio.Event()
    log = MachineLog(folder.machine_log("controller", attempt), 0)
    for record in records:
        log.append(record, lambda failed: None)
    log.append(Counted({}), lambda failed: written.set())
    await written.wait()
    log.close()


def run_of(tmp_path: Path, *attempts: list[Any]) -> dict[int, int]:
    """Numbers of groups that weights were trained on, and how often."""
    folder = RunFolder(tmp_path)
    for attempt, records in enumerate(attempts, 1):
        (folder.attempts / str(attempt)).mkdir(parents=True)
        asyncio.run(write(folder, attempt, records))
    return {2 * one.slot + one.group: times for one, times in trained_groups(folder).items()}


def test_groups_of_published_updates_count_and_intended_ones_do_not(tmp_path: Path):
    records = [Published(Version(0, 0), -1), GroupBegun(group(0)), intend(0, 0, 1), publish(0), intend(1, 2, 3)]
    assert run_of(tmp_path, records) == {0: 1, 1: 1}


def test_an_update_intended_anew_counts_as_it_was_made(tmp_path: Path):
    assert run_of(tmp_path, [intend(0, 0, 1), intend(0, 0, 2), publish(0)]) == {0: 1, 2: 1}


def test_a_group_of_two_updates_was_trained_on_twice_also_in_another_attempt(tmp_path: Path):
    assert run_of(tmp_path, [intend(0, 0, 1), publish(0)], [intend(1, 1, 2), publish(1)]) == {0: 1, 1: 2, 2: 1}


def test_updates_behind_a_checkpoint_that_the_run_went_back_to_are_gone(tmp_path: Path):
    first = [intend(0, 0, 1), publish(0), intend(1, 2, 3), publish(1)]
    assert run_of(tmp_path, first, [LineageBegun(Version(1, 1)), intend(1, 3, 4), publish(1, lineage=1)]) == {0: 1, 1: 1, 3: 1, 4: 1}


def test_what_only_the_checkpoint_says_counts_once(tmp_path: Path):
    first = [intend(0, 0, 1), publish(0), intend(1, 2, 3)]
    again = LineageBegun(Version(1, 2), ((group(2), 1), (group(3), 1)))
    assert run_of(tmp_path, first, [again, intend(2, 3, 4), publish(2, lineage=1)]) == {0: 1, 1: 1, 2: 1, 3: 2, 4: 1}
