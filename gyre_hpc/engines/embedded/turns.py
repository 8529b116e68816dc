"""What passes between the ranks of one engine: the jobs of a turn, and each rank's answers.

    leader ──Turn(jobs, trace)──▶ each follower        before it does them itself and steps
    leader ◀──taken, then Outcome── each follower      once for each EachRank job, in the order of the jobs

`trace` says what the leader has sampled so far. A follower that sampled anything else breaks here instead of computing
with other tokens than the rest. msgpack in frames of one size; a longer message says so and follows by itself.
"""

from typing import Any

import msgspec
import torch

from gyre_hpc.engines.embedded.jobs import EachRank, Job
from gyre_hpc.models.tensor_ranks import TensorRanks

BEAT_S = 60.0
"""An idle leader sends an empty turn this often."""
IDLE_DEADLINE_S = 5 * BEAT_S
"""A follower that hears nothing for so long has no leader."""
RECEIPT_DEADLINE_S = 10.0
"""A follower that is alive takes a job as soon as it has done the step before."""
ANSWER_DEADLINE_S = 60.0
_TAKEN = b"taken"
_FRAME = 1024
_HEAD = 8
_LEADER = 0


class Turn(msgspec.Struct, frozen=True, array_like=True):
    jobs: tuple[Job, ...]
    trace: int
    is_last: bool = False


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """One rank after one EachRank job."""

    result: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: str = ""


_TURN = msgspec.msgpack.Decoder(Turn)
_OUTCOME = msgspec.msgpack.Decoder(Outcome)


class LeaderTurns:
    """Raises CellLost, naming the rank, when one does not take or answer in time."""

    def __init__(self, ranks: TensorRanks) -> None:
        assert ranks.rank == _LEADER
        self._ranks = ranks

    def tell(self, turn: Turn) -> None:
        data = msgspec.msgpack.encode(turn)
        for rank in self._ranks.others():
            _send(self._ranks, rank, data)

    def hear_taken(self) -> None:
        """Before the leader does an EachRank job: every follower is about to."""
        for rank in self._ranks.others():
            _receive(self._ranks, rank, RECEIPT_DEADLINE_S)

    def hear(self, job: EachRank) -> tuple[list[Any], list[str]]:
        """The followers' results by rank, without those of ranks that failed, and `rank N: error` of these."""
        results, errors = [], []
        for rank in self._ranks.others():
            outcome = _OUTCOME.decode(_receive(self._ranks, rank, ANSWER_DEADLINE_S))
            if outcome.error:
                errors.append(f"rank {rank}: {outcome.error}")
            else:
                results.append(msgspec.msgpack.decode(outcome.result, type=job.answer or Any))
        return results, errors


class FollowerTurns:
    """Raises CellLost when the leader is gone."""

    def __init__(self, ranks: TensorRanks) -> None:
        assert ranks.rank != _LEADER
        self._ranks = ranks

    def hear(self) -> Turn:
        return _TURN.decode(_receive(self._ranks, _LEADER, IDLE_DEADLINE_S))

    def take(self) -> None:
        """Before an EachRank job is done."""
        _send(self._ranks, _LEADER, _TAKEN)

    def answer(self, result: Any, error: str = "") -> None:
        outcome = Outcome(msgspec.Raw(msgspec.msgpack.encode(result)), error)
        _send(self._ranks, _LEADER, msgspec.msgpack.encode(outcome))


def _send(ranks: TensorRanks, rank: int, data: bytes) -> None:
    frame = bytearray(len(data).to_bytes(_HEAD, "little") + data)
    if len(frame) > _FRAME:
        ranks.send(torch.frombuffer(frame, dtype=torch.uint8)[:_HEAD].repeat(_FRAME // _HEAD), rank)
        ranks.send(torch.frombuffer(frame, dtype=torch.uint8)[_HEAD:], rank)
        return
    frame += bytes(_FRAME - len(frame))
    ranks.send(torch.frombuffer(frame, dtype=torch.uint8), rank)


def _receive(ranks: TensorRanks, rank: int, deadline_s: float) -> bytes:
    frame = ranks.receive_(torch.empty(_FRAME, dtype=torch.uint8), rank, deadline_s).numpy().tobytes()
    length = int.from_bytes(frame[:_HEAD], "little")
    if length <= _FRAME - _HEAD:
        return frame[_HEAD : _HEAD + length]
    return ranks.receive_(torch.empty(length, dtype=torch.uint8), rank).numpy().tobytes()
