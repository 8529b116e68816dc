"""The durable log of a machine: torn tails are cut off, damage is refused, a full disk fails in order and is cured."""

import asyncio
import errno
import os
import resource
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.errors import StorageFull
from gyre_hpc.shell.log import MachineLog, read_log


class Fact(msgspec.Struct, frozen=True, tag=True):
    number: int


def write(path: Path, *numbers: int) -> list[Exception | None]:
    """Append facts through a fresh writer; what each of them was told."""
    outcomes: list[Exception | None] = []

    async def run() -> None:
        log = MachineLog(path, read_log(path, Fact)[1])
        done = asyncio.Event()
        for number in numbers:
            log.append(Fact(number), lambda error: (outcomes.append(error), done.set() if len(outcomes) == len(numbers) else None))
        await done.wait()
        log.close()

    asyncio.run(run())
    return outcomes


def test_what_was_persisted_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    assert write(path, 1, 2) == [None, None]
    write(path, 3)
    assert [fact.number for fact in read_log(path, Fact)[0]] == [1, 2, 3]


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_a_torn_tail_is_cut_off_when_the_log_is_opened_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "m.log"
    write(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-cut])
    write(path, 3)
    assert [fact.number for fact in read_log(path, Fact)[0]] == [1, 3]


def test_damage_before_the_tail_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    write(path, 1, 2)
    data = bytearray(path.read_bytes())
    data[10] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(ValueError, match="state=.*m.log.*damaged.*move it away"):
        read_log(path, Fact)


def test_a_full_disk_fails_everything_that_waits_and_leaves_the_log_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.log"
    write(path, 1)
    sync = os.fdatasync

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fdatasync", full)
    outcomes = write(path, 2, 3)
    assert all(isinstance(outcome, StorageFull) for outcome in outcomes)
    monkeypatch.setattr(os, "fdatasync", sync)
    assert write(path, 4) == [None]
    assert [fact.number for fact in read_log(path, Fact)[0]] == [1, 4]


def test_what_did_not_fit_is_not_written_later_between_records_that_are_durable(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    outcomes: list[Exception | None] = []

    async def append(log: MachineLog, number: int) -> None:
        done = asyncio.Event()
        log.append(Fact(number), lambda error: (outcomes.append(error), done.set()))
        await done.wait()

    async def run() -> None:
        log = MachineLog(path, 0)
        await append(log, 1)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        # A real write that ends half-way, as on a full disk; the kernel says EFBIG then.
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))
        try:
            await append(log, 2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await append(log, 3)
        log.close()

    asyncio.run(run())
    assert [type(outcome) for outcome in outcomes] == [type(None), OSError, type(None)]
    records, whole = read_log(path, Fact)
    assert [fact.number for fact in records] == [1, 3] and whole == path.stat().st_size
