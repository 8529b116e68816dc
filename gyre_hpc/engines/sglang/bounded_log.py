"""A log of bounded size: the file, and the one before it (NAME.1). Its last bytes are at hand for error messages."""

import os
from pathlib import Path
from typing import BinaryIO

TAIL_BYTES = 6000


class BoundedLog:
    """At most `limit` bytes in each of the two files. Begins anew; what lies there becomes the file before it: it may say why there is
    a new beginning."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit = path, limit
        self._tail = b""
        self._size = 0
        self._file: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        """What a full disk does not take is lost to the file, not to the tail."""
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        try:
            for start in range(0, len(data), self._limit):
                self._put(data[start : start + self._limit])
        except OSError:
            return

    def tail(self) -> str:
        """Its last whole lines."""
        whole = self._tail if len(self._tail) < TAIL_BYTES else self._tail.partition(b"\n")[2]
        return whole.decode(errors="replace").rstrip()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _put(self, data: bytes) -> None:
        if self._file is not None and self._size + len(data) > self._limit:
            # Let go of at once: should the next one not open now, the next bytes try again.
            full, self._file = self._file, None
            full.close()
        if self._file is None:
            if self._path.is_file():
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file, self._size = open(self._path, "wb", buffering=0, opener=_for_us_alone), 0  # noqa: SIM115  (stays open)
        self._size += self._file.write(data)


def _for_us_alone(path: str, flags: int) -> int:
    # A server that is told to log at INFO prints its flags, and the key among them.
    return os.open(path, flags, 0o600)
