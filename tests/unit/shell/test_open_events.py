"""The event file of a process with a loop: the tail of a burst reaches it while the loop runs, noted from whatever thread."""

import asyncio
from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.observability.events import EventWriter, read_events
from gyre_hpc.shell.events import open_events
from gyre_hpc.shell.timers import until


def on_disk(folder: RunFolder, count: int) -> bool | None:
    return len(read_events(folder.events_folder)) == count or None


def test_the_tail_of_a_burst_is_on_disk_after_the_loop_ran_for_a_while(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)

    async def quiet_after_a_burst() -> None:
        events = open_events(folder, "p", 1)
        for number in range(5):
            events.note("alarm", {"what": number})
        await asyncio.to_thread(events.note, "alarm", {"what": "of a thread"})
        await until(lambda: on_disk(folder, 6), 0.05, 30.0)

    asyncio.run(quiet_after_a_burst())


def test_an_event_after_the_loop_is_written_all_the_same(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)

    async def opened() -> EventWriter:
        return open_events(folder, "p", 1)

    events = asyncio.run(opened())
    events.note("alarm", {})
    events.note("alarm", {})
    assert on_disk(folder, 2)
