"""Figures of moving things, and what they ought to be."""

import statistics

from benchmarks.gateway.goals import Figure, Goal

GOALS = {
    "kv_migration_vs_reprefill_4k": Goal(limit=0.3),
    "kv_share_of_loopback": Goal(limit=0.8, at_least=True),
    "snapshot_share_of_loopback": Goal(limit=0.8, at_least=True),
    "switch_share_of_wall": Goal(limit=0.05),
}


class Figures:
    """Everything the run found, in order."""

    def __init__(self) -> None:
        self.values: dict[str, Figure] = {}

    def put(self, name: str, value: float) -> None:
        self.values[name] = value if isinstance(value, int) else float(f"{value:.4g}")

    def put_seconds(self, name: str, values: list[float]) -> None:
        """The median; nothing when nothing was seen."""
        self.values[name] = float(f"{statistics.median(values):.4g}") if values else None

    def table(self) -> str:
        lines = [f"{'figure':<40}{'value':>12}{'goal':>10}"]
        for name, value in self.values.items():
            goal = GOALS.get(name)
            verdict = "" if goal is None else "not measured" if value is None else "ok" if goal.met(value) else "missed"
            lines.append(f"{name:<40}{'-' if value is None else value!s:>12}{goal or ''!s:>10}  {verdict}".rstrip())
        return "\n".join(lines)

    def missed(self) -> list[str]:
        """Goals of what was measured that are not met."""
        found = ((name, self.values[name], goal) for name, goal in GOALS.items() if name in self.values)
        return [name for name, value, goal in found if value is None or not goal.met(value)]
