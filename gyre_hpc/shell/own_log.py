"""Logging of a process in which several cells live: what a cell's tasks log goes to the cell's file, the rest where stderr goes."""

import contextlib
import contextvars
import logging
import os
from pathlib import Path
from typing import Self

_CURRENT: contextvars.ContextVar["OwnLog | None"] = contextvars.ContextVar("own_log", default=None)
_STDERR = 2


class OwnLog:
    """While it is entered, records of this context go to `path`. Appended line by line: the file may be cut meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, _STDERR

    def __enter__(self) -> Self:
        # What cannot be opened is told on stderr.
        with contextlib.suppress(OSError):
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)
        file, self._file = self._file, _STDERR
        if file != _STDERR:
            os.close(file)

    def write(self, data: bytes) -> None:
        """Raises OSError."""
        os.write(self._file, data)


class ByOwnLog(logging.Handler):
    """The root logger's handler of such a process."""

    def emit(self, record: logging.LogRecord) -> None:
        own = _CURRENT.get()
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
            if own is None:
                os.write(_STDERR, line)
            else:
                own.write(line)
        except (OSError, TypeError, ValueError):  # as every handler: a log that cannot be written ends nothing
            self.handleError(record)
