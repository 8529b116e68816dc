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


class Worker:
    """Runs `step` while `has_work()`; both are called in the thread only."""

    def __init__(
        self,
        *,
        has_work: Callable[[], bool],
        step: Callable[[], list[Piece]],
        deliver: Callable[[list[Piece]], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._has_work, self._step, self._deliver, self._on_failure = has_work, step, deliver, on_failure
        self._condition = threading.Condition()
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_closed = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="engine-compute", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, job: Callable[[], Any]) -> "Future[Any]":
        """Run `job` in the thread, between two steps. Raises RuntimeError after `close`."""
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
        return self.failure is None and self._has_work()

    def _do(self, future: "Future[Any]", job: Callable[[], Any]) -> None:
        try:
            if self.failure is not None:
                raise RuntimeError("the engine's compute thread failed") from self.failure
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - it rises in whoever asked for the job
            future.set_exception(error)

    def _do_step(self) -> None:
        try:
            pieces = self._step()
        except BaseException as error:  # noqa: BLE001 - thread edge: it is shown to every caller by on_failure
            self.failure = error
            self._on_failure(error)
        else:
            if pieces:
                self._deliver(pieces)
