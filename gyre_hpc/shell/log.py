"""Persist: an append-only file per process and attempt; records framed with length and CRC, durable before they count.

Writes that wait for the disk together share one fdatasync (group commit). A torn tail, left by a crash, is cut off when
the file is opened again; damage before the tail raises.
"""

import asyncio
import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gyre_hpc.errors import StorageFull, UserError

_HEAD = struct.Struct("<II")
_WITHOUT = "the run then goes on from its newest checkpoint"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.ESTALE}


def read_log(path: Path, record_type: Any) -> tuple[list[Any], int]:
    """Records of a log and the length of its whole part in bytes. Raises UserError on damage before the tail."""
    data = path.read_bytes() if path.exists() else b""
    decoder = msgspec.msgpack.Decoder(record_type)
    records, offset = [], 0
    while offset + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, offset)
        payload = data[offset + _HEAD.size : offset + _HEAD.size + length]
        if len(payload) < length:
            break
        if zlib.crc32(payload) != crc:
            if offset + _HEAD.size + length == len(data):
                break
            raise UserError("state", str(path), f"its record at byte {offset} is damaged; restore the file, or move it away: {_WITHOUT}")
        records.append(decoder.decode(payload))
        offset += _HEAD.size + length
    return records, offset


class MachineLog:
    """The one writer of a machine's log."""

    def __init__(self, path: Path, whole: int) -> None:
        """Open for appending after the first `whole` bytes; what follows them is a torn tail and is cut off."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a buffer would keep what a full disk refused and write it later, between records that were told durable.
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  (lives as long as the process)
        self._file.truncate(whole)
        self._whole = whole
        self._waiting: list[tuple[bytes, Callable[[Exception | None], None]]] = []
        self._task: asyncio.Task[None] | None = None

    def append(self, record: Any, done: Callable[[Exception | None], None]) -> None:
        """Write `record`; `done(None)` once durable, `done(error)` if it could not be written."""
        payload = msgspec.msgpack.encode(record)
        self._waiting.append((_HEAD.pack(len(payload), zlib.crc32(payload)) + payload, done))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            outcome: Exception | None = None
            try:
                await loop.run_in_executor(None, self._write, b"".join(frame for frame, _ in batch))
            except (OSError, StorageFull) as error:
                outcome = error
                # What waits behind a failure fails with it: records are durable in the order they were given, or not at all.
                batch, self._waiting = batch + self._waiting, []
            for _, done in batch:
                done(outcome)
        self._task = None

    def _write(self, data: bytes) -> None:
        try:
            # What a failed write left, where it could not be cut off then.
            self._file.truncate(self._whole)
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fdatasync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._whole)
            raise as_storage_error(error) from error
        self._whole += len(data)

    def close(self) -> None:
        self._file.close()


def as_storage_error(error: OSError) -> Exception:
    """StorageFull for what can be cured by waiting, the error itself otherwise."""
    return StorageFull(str(error)) if error.errno in _FULL else error
