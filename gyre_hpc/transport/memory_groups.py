"""Groups of cells that live in one process: the timed trainer's, without torch and without sockets.

Same contract as c10d: nonce before anything, a copy, a deadline, an abort; rank 0 alone gets the sum.
"""

import itertools
import threading
from typing import Any

import numpy as np

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.base import Groups
from gyre_hpc.transport.proof import is_right, proof


class _Meeting:
    """What the members of one generation share."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.proofs: dict[int, str] = {}
        self.parts: dict[int, np.ndarray] = {}
        self.is_reduced = False
        self.failed = ""


_PORTS = itertools.count(1)
_LOCK = threading.Lock()
_MEETINGS: dict[str, _Meeting] = {}


class MemoryGroups(Groups):
    """Kind `memory`. Tensors are numpy arrays; members must be threads of one process."""

    def __init__(self) -> None:
        self._hosted: dict[int, str] = {}
        self._joined: dict[int, _Meeting] = {}
        self._aborted: set[int] = set()

    def host(self, generation: int, nonce: str) -> str:
        if not nonce:
            raise ValueError("nonce is empty")
        with _LOCK:
            self._refuse_aborted(generation)
            if generation not in self._hosted:
                self._hosted[generation] = f"memory:{next(_PORTS)}"
                _MEETINGS[self._hosted[generation]] = _Meeting()
            address = self._hosted[generation]
        for older in [g for g in self._hosted if g < generation]:
            self.abort(older)
        return address

    def reduce(self, generation: int, address: str, nonce: str, rank: int, world: int, tensor: Any, deadline_s: float) -> Any | None:
        with _LOCK:
            self._refuse_aborted(generation)
            meeting = _MEETINGS.get(address)
            if meeting is not None:
                self._joined[generation] = meeting
        what = f"reduce of generation {generation}, rank {rank}"
        if meeting is None:
            raise TransferFailed(f"{what}: nobody hosts {address}")
        try:
            return _reduce(meeting, generation, nonce, rank, world, np.array(tensor, copy=True), deadline_s)
        except TransferFailed as error:
            raise TransferFailed(f"{what}: {error}") from error
        finally:
            self._joined.pop(generation, None)

    def abort(self, generation: int) -> None:
        with _LOCK:
            self._aborted.add(generation)
            address = self._hosted.pop(generation, None)
            meetings = (_MEETINGS.pop(address, None) if address else None, self._joined.get(generation))
        for meeting in meetings:
            if meeting is not None:
                with meeting.changed:
                    meeting.failed = meeting.failed or "aborted"
                    meeting.changed.notify_all()

    def close(self) -> None:
        for generation in [*self._hosted, *self._joined]:
            self.abort(generation)

    def _refuse_aborted(self, generation: int) -> None:
        if generation in self._aborted:
            raise TransferFailed(f"generation {generation} was aborted")


def _reduce(
    meeting: _Meeting, generation: int, nonce: str, rank: int, world: int, part: np.ndarray, deadline_s: float
) -> np.ndarray | None:
    with meeting.changed:
        meeting.proofs[rank] = proof(nonce, generation, rank, world)
        meeting.parts[rank] = part
        meeting.changed.notify_all()
        done = meeting.changed.wait_for(lambda: bool(meeting.failed) or len(meeting.proofs) >= world, deadline_s)
        if meeting.failed and not meeting.is_reduced:
            raise TransferFailed(meeting.failed)
        if not done:
            absent = sorted(set(range(world)) - set(meeting.proofs))
            raise TransferFailed(f"deadline of {deadline_s:g} s passed: rank {absent[0]} of {world} did not come")
        for other in range(world):
            if not is_right(meeting.proofs.get(other, ""), nonce, generation, other, world):
                raise TransferFailed(f"rank {other} of {world} shows a wrong nonce")
        if rank != 0:
            _await_root(meeting, deadline_s)
            return None
        total = meeting.parts[0]
        for other in range(1, world):
            if meeting.parts[other].shape != total.shape:
                meeting.failed = f"rank {other} has shape {meeting.parts[other].shape}, rank 0 {total.shape}"
                meeting.changed.notify_all()
                raise TransferFailed(meeting.failed)
            total = total + meeting.parts[other]
        meeting.is_reduced = True
        meeting.changed.notify_all()
        return total


def _await_root(meeting: _Meeting, deadline_s: float) -> None:
    if not meeting.changed.wait_for(lambda: bool(meeting.failed) or meeting.is_reduced, deadline_s):
        raise TransferFailed(f"deadline of {deadline_s:g} s passed: rank 0 did not confirm the sum")
    if not meeting.is_reduced:
        raise TransferFailed(meeting.failed)
