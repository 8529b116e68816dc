"""Runs of many timed cells: what their configurations have in common."""

REHEARSAL = ("+experiment=rehearsal", "transport.kv=none", "sandbox=none", "tracker=none")
PER_PROCESS = 32


def cells(number: int) -> tuple[str, ...]:
    """Overrides for so many, in few processes."""
    return f"cluster.cells={number}", f"cluster.cells_per_process={min(number, PER_PROCESS)}"
