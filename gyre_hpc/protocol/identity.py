"""Who is who: versions, executions, groups. Their text forms are used in URLs, file names and messages."""

import enum
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import msgspec


class Role(enum.Enum):
    """What a cell does."""

    rollout = "rollout"
    train = "train"


class Version(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Optimizer steps behind a set of weights. Loading a checkpoint begins a new lineage."""

    lineage: int = 0
    step: int = 0

    def __str__(self) -> str:
        return f"{self.lineage}.{self.step}"

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Inverse of `str`. Raises ValueError on anything else."""
        lineage, _, step = text.partition(".")
        return cls(int(lineage), int(step))


class GroupId(msgspec.Struct, frozen=True, order=True):
    """The K executions of one task. `slot` is the dispatch ordinal divided by groups_per_batch."""

    purpose: str
    slot: int
    group: int

    def __str__(self) -> str:
        return f"{self.purpose}-{self.slot}-{self.group}"


class ExecutionId(msgspec.Struct, frozen=True, order=True):
    """One harness run on one task: `train-3-7-2`, after a restart `train-3-7-2-r1`."""

    purpose: str
    slot: int
    group: int
    index: int
    restart: int = 0

    def __str__(self) -> str:
        tail = f"-r{self.restart}" if self.restart else ""
        return f"{self.purpose}-{self.slot}-{self.group}-{self.index}{tail}"

    @property
    def group_id(self) -> GroupId:
        return GroupId(self.purpose, self.slot, self.group)

    def restarted(self) -> "ExecutionId":
        """The id of the next try at the same place in the same group."""
        return msgspec.structs.replace(self, restart=self.restart + 1)

    @classmethod
    def parse(cls, text: str) -> "ExecutionId":
        """Inverse of `str`. Raises ValueError on anything else."""
        return _parsed(text)


def address(execution: str, life: int) -> str:
    """What stands for one life of an execution in URLs and keys: `train-3-7-2`, `train-3-7-2.1`, ..."""
    return f"{execution}.{life}" if life else execution


def parse_address(text: str) -> tuple[str, int]:
    """Inverse of address. Raises ValueError on anything else."""
    execution, dot, life = text.partition(".")
    ExecutionId.parse(execution)
    if dot and not _LIFE.fullmatch(life):
        raise ValueError(f"not a life of an execution: {text!r} (expected execution.N, N from 1 on)")
    return execution, int(life or 0)


def shard_of(execution: str, shards: Sequence[str]) -> str:
    """The gateway shard an execution belongs to; the same in every process and after every restart."""
    return shards[zlib.crc32(execution.encode()) % len(shards)]


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ExecutionId:
    """The same few ids are read again with every event."""
    match = _EXECUTION.fullmatch(text)
    if match is None:
        raise ValueError(f"not an execution id: {text!r} (expected purpose-slot-group-index[-rN])")
    purpose, slot, group, index, restart = match.groups()
    return ExecutionId(purpose, int(slot), int(group), int(index), int(restart or 0))


_EXECUTION = re.compile(r"(train|eval|warm)-(\d{1,9})-(\d{1,9})-(\d{1,9})(?:-r(\d{1,9}))?")
_LIFE = re.compile(r"[1-9]\d{0,8}")
