"""Values of this room. A node is a call; equal tokens of two calls are two nodes."""

from dataclasses import dataclass

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import VersionSpan
from gyre_hpc.protocol.tensors import Floats, Ids


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Call:
    """One finished call, folded from its journal records."""

    id: str
    execution: str
    ordinal: int
    """Order of arrival within the execution."""
    parent: str | None
    suffix_ids: Ids
    """int32 [S]: what its prompt adds to the parent's full ids."""
    output_ids: Ids
    """int32 [O]."""
    logprobs: Floats
    """float32 [O], of the distribution sampled from."""
    spans: tuple[VersionSpan, ...]
    """Cover [0, O)."""
    oldest_kv: tuple[tuple[int, Version], ...]
    """(end, version): tokens up to `end` attended to KV no older than `version`; ends ascend, last is O."""
    role: str
    branch: str
    finish: str
    delivered: bool
    """Its whole answer reached the client, and its tokens are what the engine saw and produced: only such calls are trained on."""
    temperature: float
    malformed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trajectory:
    """An admitted root-to-leaf path."""

    leaf: str
    role: str
    calls: tuple[str, ...]
    """Root first."""
    num_targets: int
    """Targets on this path."""
    num_new_targets: int
    """Targets no earlier admitted path had; only these carry weight in this path's sequence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredExecution:
    """What the runner and the admission say of one execution of a group."""

    execution: str
    state: str
    """scored, partial, unscored, infra_error."""
    score: float | None
    num_targets: int
    """|T_e|."""
