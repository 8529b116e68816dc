"""What the batch machine persists: facts it could not ask anybody for after a restart. Everything else is derived or asked."""

import msgspec

from gyre_hpc.protocol.identity import GroupId, Version
from gyre_hpc.protocol.to_batch import Ended


class AttemptBegun(msgspec.Struct, frozen=True, tag="attempt_begun"):
    """Executions live before it belong to an earlier attempt: their processes are gone."""

    attempt: int
    known: int | None = None
    """Records there were when it began: what a process of an earlier attempt wrote after that counts for nothing. None: all count."""


class GroupBegun(msgspec.Struct, frozen=True, tag="group_begun"):
    """`floor`: oldest step that a first call of its executions could meet when it began."""

    group: GroupId
    floor: int = 0


class ExecutionRestarted(msgspec.Struct, frozen=True, tag="execution_restarted"):
    """`old` will never end; `new` runs in its place."""

    old: str
    new: str


class LifeBegun(msgspec.Struct, frozen=True, tag="life_begun"):
    """The process of the execution's life before this one is gone; it goes on from what was recorded."""

    execution: str
    life: int


class ExecutionEnded(msgspec.Struct, frozen=True, tag="execution_ended"):
    ended: Ended


class FirstCalled(msgspec.Struct, frozen=True, tag="first_called"):
    execution: str
    version: Version


class CommitIntended(msgspec.Struct, frozen=True, tag="commit_intended"):
    """Persisted before the core is told to apply, so that a restarted controller knows what an applied update consumed."""

    update: int
    manifest_hash: str
    version: Version
    groups: tuple[GroupId, ...]
    num_executions: int


class Published(msgspec.Struct, frozen=True, tag="published"):
    """`version` is what cells serve from now on. `update` is the update that led to it, -1 for a loaded or fitted one."""

    version: Version
    update: int
    metrics: dict[str, float] = {}


class LineageBegun(msgspec.Struct, frozen=True, tag="lineage_begun"):
    """A checkpoint was loaded as `version`: updates >= version.step of earlier lineages never happened."""

    version: Version
    consumed: tuple[tuple[GroupId, int], ...] = ()
    """(group, update) the checkpoint consumed though no `Published` says so: the core was lost in between."""


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """Totals so far, so that a restart does not lose them."""

    totals: dict[str, float]


class EvaluationEnded(msgspec.Struct, frozen=True, tag="evaluation_ended"):
    """Pass rate of the held-out tasks at `version`."""

    slot: int
    version: Version
    passed: int
    total: int


Record = (
    AttemptBegun | GroupBegun | ExecutionRestarted | LifeBegun | ExecutionEnded | FirstCalled | CommitIntended | Published | LineageBegun | Counted | EvaluationEnded
)  # fmt: skip
