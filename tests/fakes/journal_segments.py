"""Segments of a journal as a shard's writer leaves them."""

import asyncio
from pathlib import Path

from gyre_hpc.gateway.journal_writer import JournalWriter
from gyre_hpc.protocol.journal import Record
from gyre_hpc.shell.journal_files import segments
from gyre_hpc.trajectory.contents import SUFFIX


def write(folder: Path, *records: Record, attempt: int = 1, segment_bytes: int = 1 << 20, is_killed: bool = False) -> list[Path]:
    """A shard's start and end; its segments."""

    async def steps() -> None:
        writer = JournalWriter(folder, "gateway-0", attempt, fsync=False, segment_bytes=segment_bytes)
        for record in records:
            written = asyncio.Event()
            writer.append(record, lambda error, written=written: written.set())  # type: ignore[misc]
            await written.wait()
        writer.close()

    asyncio.run(steps())
    paths = segments(folder, "gateway-0", attempt)
    if is_killed:
        paths[-1].with_suffix(SUFFIX).unlink()
    return paths


def spoil(path: Path) -> None:
    """Its size stays; whoever reads it notices."""
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
