"""The one thread in which an embedded engine computes: jobs between steps, steps while there is work.

Jobs run in the order they were given. A job's error goes to its caller. What breaks the engine (a step that raises, ranks
that did not do the same, a rank that is lost) is told to `on_failure` once, and later jobs raise it.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import torch

from gyre_hpc.engines.answer import Piece
from gyre_hpc.engines.embedded.core import EngineCore
from gyre_hpc.engines.embedded.jobs import EachRank, Job, do
from gyre_hpc.engines.embedded.turns import BEAT_S, LeaderTurns, Turn


class Worker:
    """Owns the core: nobody else changes it."""

    def __init__(
        self,
        core: EngineCore,
        *,
        turns: LeaderTurns | None = None,
        deliver: Callable[[list[Piece]], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """turns: to the other ranks, which have to do what this one does. Both functions are called in the thread."""
        self._turns = turns
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
                if not self._condition.wait(None if self._turns is None else BEAT_S):
                    break
            jobs, is_closed = list(self._jobs), self._is_closed
            self._jobs.clear()
        self._tell([job for _, job in jobs], is_closed)
        for future, job in jobs:
            self._do(future, job)
        if not is_closed and self._can_step():
            self._do_step()
        return not is_closed

    def _can_step(self) -> bool:
        return self.failure is None and self._core.has_work

    def _tell(self, jobs: list[Job], is_last: bool) -> None:
        if self._turns is None or self.failure is not None:
            return
        with contextlib.suppress(Exception), self._breaking():
            self._turns.tell(Turn(tuple(jobs), self._core.trace, is_last))

    def _do(self, future: "Future[Any]", job: Job) -> None:
        try:
            if self.failure is not None:
                raise RuntimeError("the engine's compute thread failed") from self.failure
            result = self._everywhere(job) if isinstance(job, EachRank) else self._here(job)
        except BaseException as error:  # noqa: BLE001 - it rises in whoever asked for the job
            future.set_exception(error)
        else:
            future.set_result(result)

    def _here(self, job: Job) -> Any:
        result, pieces = do(self._core, job)
        self._send(pieces)
        return result

    def _everywhere(self, job: Job) -> list[Any]:
        """The results of all ranks, this one's first."""
        assert isinstance(job, EachRank)
        if self._turns is None:
            return [self._here(job)]
        result, own_error = None, None
        with self._breaking():
            self._turns.hear_taken()
        try:
            result = self._here(job)
        except Exception as error:  # noqa: BLE001 - rises below
            own_error = error
        with self._breaking():
            others, errors = self._turns.hear(job)
        failed = len(errors) + (own_error is not None)
        if 0 < failed <= len(errors) + len(others) and not job.may_fail_alone:
            self._break(RuntimeError(f"{type(job).__name__} failed on some ranks only: {'; '.join(errors) or repr(own_error)}"))
        if own_error is not None:
            raise own_error
        if errors:
            raise RuntimeError("; ".join(errors))
        return [result, *others]

    def _do_step(self) -> None:
        try:
            pieces = self._core.step()
        except BaseException as error:  # noqa: BLE001 - thread edge: it is shown to every caller by on_failure
            self._break(error)
        else:
            self._send(pieces)

    @contextlib.contextmanager
    def _breaking(self) -> Iterator[None]:
        """What fails in here is a lost rank."""
        try:
            yield
        except BaseException as error:
            self._break(error)
            raise

    def _break(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self._on_failure(error)

    def _send(self, pieces: list[Piece]) -> None:
        if pieces:
            self._deliver(pieces)
