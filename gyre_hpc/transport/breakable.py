"""Run a blocking call so that its caller always comes back: at its end, at its deadline, or when somebody aborts it.

Why: collectives of gloo and NCCL and the clients of their stores block in C++ and keep only roughly to their own
timeouts. The call runs in a thread of its own; on abort or at the deadline the caller gets TransferFailed at once, and
the thread ends by the library's own timeout. What it works on must therefore belong to it alone.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gyre_hpc.errors import TransferFailed


class Breakable:
    """One call, used once. `call` gets this object and may look at `broken`."""

    def __init__(self, call: Callable[["Breakable"], Any], what: str) -> None:
        self._call = call
        self._what = what
        self._changed = threading.Condition()
        self._is_done = False
        self._result: Any = None
        self._error: Exception | None = None
        self.broken = ""
        """Why the caller went away; empty while it waits."""

    def run(self, deadline_s: float) -> Any:
        """The call's result. Raises TransferFailed (its error, the deadline, or the abort) with the reason."""
        threading.Thread(target=self._work, name=self._what, daemon=True).start()
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_done or bool(self.broken), deadline_s):
                self.broken = f"deadline of {deadline_s:g} s passed"
            if self.broken:
                raise TransferFailed(f"{self._what}: {self.broken}")
        if self._error is not None:
            raise TransferFailed(f"{self._what}: {self._error}") from self._error
        return self._result

    def abort(self, reason: str) -> None:
        """Let the caller go, from any thread. Does nothing once the call ended."""
        with self._changed:
            if not self._is_done and not self.broken:
                self.broken = reason
            self._changed.notify_all()

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """For the call: a short piece of work on what belongs to the caller. It is done while the caller waits, who does not leave
        before its end. Raises TransferFailed when the caller has left."""
        with self._changed:
            if self.broken:
                raise TransferFailed(self.broken)
            yield

    def _work(self) -> None:
        try:
            self._result = self._call(self)
        except Exception as error:  # noqa: BLE001  whatever the library raises is the reason the caller gets
            self._error = error
        with self._changed:
            self._is_done = True
            self._changed.notify_all()
