"""Executions to test with: drawn trees of calls, and calls by hand."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import VersionSpan
from gyre_hpc.trajectory.admission import ROLES
from gyre_hpc.trajectory.base import Call

EXECUTION = "train-0-0-0"


def make_call(
    ordinal: int,
    parent: int | None,
    *,
    suffix: int = 2,
    output: int = 3,
    role: str = "main",
    delivered: bool = True,
    execution: str = EXECUTION,
    spans: Sequence[VersionSpan] | None = None,
    oldest_kv: Sequence[tuple[int, Version]] | None = None,
) -> Call:
    """A call whose tokens are all different: 1000 * (ordinal + 1) + position; log-probs are minus those over 1e6."""
    ids = np.arange(suffix + output, dtype=np.int32) + 1000 * (ordinal + 1)
    return Call(
        id=f"{execution}/{ordinal}",
        execution=execution,
        ordinal=ordinal,
        parent=None if parent is None else f"{execution}/{parent}",
        suffix_ids=ids[:suffix],
        output_ids=ids[suffix:],
        logprobs=(-ids[suffix:] / 1e6).astype(np.float32),
        spans=tuple(spans if spans is not None else [VersionSpan(Version(0, 0), 0, output)] if output else []),
        oldest_kv=tuple(oldest_kv if oldest_kv is not None else [(output, Version(0, 0))] if output else []),
        role=role,
        branch="",
        finish="stop",
        delivered=delivered,
        temperature=1.0,
    )


@st.composite
def drawn_calls(draw: st.DrawFn, execution: str = EXECUTION, most: int = 14) -> list[Call]:
    """Any forest: every call builds on an earlier one or on nothing."""
    calls: list[Call] = []
    for ordinal in range(draw(st.integers(0, most))):
        output = draw(st.integers(0, 6))
        cut = draw(st.integers(0, output))
        old, new = Version(0, draw(st.integers(0, 2))), Version(0, 2)
        spans = [span for span in (VersionSpan(old, 0, cut), VersionSpan(new, cut, output)) if span.end > span.start]
        kv_cut = draw(st.integers(0, output))
        calls.append(
            make_call(
                ordinal,
                draw(st.one_of(st.none(), st.integers(0, ordinal - 1))) if ordinal else None,
                suffix=draw(st.integers(0, 4)),
                output=output,
                role=draw(st.sampled_from(ROLES)),
                delivered=draw(st.booleans()) or draw(st.booleans()),
                execution=execution,
                spans=spans,
                oldest_kv=[(end, v) for end, v in ((kv_cut, old), (output, new)) if end],
            )
        )
    return calls
