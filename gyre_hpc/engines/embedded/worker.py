"""The one thread in which an embedded engine computes: jobs between steps, steps while there is work.

Jobs run in the order they were given. If a job or a step raises, a job's error goes to its caller; a step's error breaks
the engine: `on_failure` is called once, later jobs raise it.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch

from gyre_hpc.engines.answer import Piece
from gyre_hpc.engines.embedded.core import EngineCore
from gyre_hpc.engines.embedded.jobs import EachRank, Job, do


class Worker:
    """Owns the core: nobody else changes it."""

    def __init__(
        self,
        core: EngineCore,
        *,
        deliver: Callable[[list[Piece]], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Both functions are called in the thread."""
        self._core, self._deliver, self._on_failure = core, deliver, on_failure
        self._condition = threading.Condition()
        self._jobs: deque[tuple[Future[Any], Job]] = deque()
        self._is_closed = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="engine-compute", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, job: Job) -> "Future[Any]":
        """Do `job` in the thread, between two steps; the future has its result (jobs.py), once its pieces are delivered.
        Raises RuntimeError after `close`."""
        future: Future[Any] = Future()
        with self._condition:
            if self._is_closed:
                raise RuntimeError("the engine is closed")
            self._jobs.append((future, job))
            self._condition.notify()
        return future

    def close(self) -> None:
        """End the thread after the jobs given so far."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        # One thread: two OpenMP threads on shared cores are slower than one.
        torch.set_num_threads(1)
        while self._turn():
            pass

    def _turn(self) -> bool:
        """Jobs, then one step. False when closed."""
        with self._condition:
            while not self._jobs and not self._is_closed and not self._can_step():
                self._condition.wait()
            jobs, is_closed = list(self._jobs), self._is_closed
            self._jobs.clear()
        for future, job in jobs:
            self._do(future, job)
        if not is_closed and self._can_step():
            self._do_step()
        return not is_closed

    def _can_step(self) -> bool:
        return self.failure is None and self._core.has_work

    def _do(self, future: "Future[Any]", job: Job) -> None:
        try:
            if self.failure is not None:
                raise RuntimeError("the engine's compute thread failed") from self.failure
            result, pieces = do(self._core, job)
            self._send(pieces)
            future.set_result([result] if isinstance(job, EachRank) else result)
        except BaseException as error:  # noqa: BLE001 - it rises in whoever asked for the job
            future.set_exception(error)

    def _do_step(self) -> None:
        try:
            pieces = self._core.step()
        except BaseException as error:  # noqa: BLE001 - thread edge: it is shown to every caller by on_failure
            self.failure = error
            self._on_failure(error)
        else:
            self._send(pieces)

    def _send(self, pieces: list[Piece]) -> None:
        if pieces:
            self._deliver(pieces)
