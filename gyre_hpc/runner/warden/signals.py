"""Signals as something to poll: handlers do nothing, the numbers arrive on a pipe."""

import os
import signal


class Wakeups:
    """Catches the given signals of this (single-threaded) process from now on."""

    def __init__(self, *signals: int) -> None:
        self.fd, writing = os.pipe()
        for fd in (self.fd, writing):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for sig in signals:
            signal.signal(sig, lambda number, frame: None)

    def take(self) -> set[int]:
        """Signals caught since the last call."""
        try:
            return set(os.read(self.fd, 4096))
        except BlockingIOError:
            return set()
