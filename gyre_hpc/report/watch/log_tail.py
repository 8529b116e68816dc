"""logs/*.log of a run as they grow: every process's lines with its name before them, over rotation and files that come later.

A log is cut by its supervisor when it is large: what it holds goes to `<name>.log.1`, and it begins anew (supervisor/log_files.py). What
was not read by then is read there.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 20
_TAIL = 1 << 16
"""Bytes per wanted line, at most, in which the last lines of a file are looked for at once."""


@dataclass(kw_only=True, slots=True)
class _Place:
    """How far one file was read."""

    inode: int
    offset: int
    rest: bytes = b""
    """A line that is not whole yet."""


class LogTail:
    """Reads the logs of the processes that `wanted` names."""

    def __init__(self, folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> None:
        self._folder, self._wanted = folder, wanted
        self._places: dict[Path, _Place] = {}

    def last(self, num_lines: int) -> Iterator[tuple[str, str]]:
        """(process, line): the newest lines of each file; `poll` goes on after them."""
        for path in self._files():
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                lines = _last_lines(file, size, num_lines + 1)
                self._places[path] = _Place(inode=os.fstat(file.fileno()).st_ino, offset=size, rest=b"")
            if lines and not lines[-1].endswith(b"\n"):
                self._places[path].rest = lines.pop()
            for line in lines[max(0, len(lines) - num_lines) :]:
                yield path.stem, _text(line)

    def poll(self) -> Iterator[tuple[str, str]]:
        """(process, line): what was written since, file by file."""
        for path in self._files():
            yield from ((path.stem, _text(line)) for line in self._new(path))

    def rest(self) -> Iterator[tuple[str, str]]:
        """Lines that never became whole."""
        for path, place in self._places.items():
            if place.rest:
                yield path.stem, _text(place.rest)
                place.rest = b""

    @property
    def names(self) -> list[str]:
        """Processes that have a log."""
        return [path.stem for path in self._files()]

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.log") if self._wanted(path.stem))

    def _new(self, path: Path) -> Iterator[bytes]:
        try:
            file = path.open("rb")
        except OSError:  # just being rotated
            return
        with file:
            now = os.fstat(file.fileno())
            place = self._places.setdefault(path, _Place(inode=now.st_ino, offset=0))
            if now.st_ino != place.inode or now.st_size < place.offset:
                yield from self._moved(path, place)
                place.inode, place.offset = now.st_ino, 0
            yield from _lines(file, place)

    def _moved(self, path: Path, place: _Place) -> Iterator[bytes]:
        """The end of what was cut off."""
        try:
            with path.with_name(path.name + ".1").open("rb") as before:
                if os.fstat(before.fileno()).st_size >= place.offset:
                    yield from _lines(before, place)
        except OSError:
            return


def _lines(file: BinaryIO, place: _Place) -> Iterator[bytes]:
    file.seek(place.offset)
    while data := file.read(_CHUNK):
        place.offset += len(data)
        *whole, place.rest = (place.rest + data).split(b"\n")
        yield from whole


def _last_lines(file: BinaryIO, size: int, num_lines: int) -> list[bytes]:
    """With their ends, oldest first."""
    length = min(size, _TAIL)
    while True:
        file.seek(size - length)
        lines = file.read(length).splitlines(keepends=True)
        if len(lines) > num_lines or length == size or length >= _TAIL * num_lines:
            return lines[-num_lines:]
        length = min(size, 2 * length)


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r\n")


def wanted_by(cell: int | None, process: str) -> Callable[[str], bool]:
    """Which logs: all, or those of one process, its parts on other nodes and its server."""
    name = process or (f"cell-{cell}" if cell is not None else "")
    return lambda stem: not name or stem == name or stem.startswith((f"{name}-part-", f"{name}-sglang"))
