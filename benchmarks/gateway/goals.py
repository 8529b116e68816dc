"""Figures, what they ought to be, and how they are shown."""

from dataclasses import dataclass, field

Figure = float | int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    limit: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


GOALS = {
    "cpu_vs_litellm_2k": Goal(limit=0.12),
    "cpu_vs_litellm_1m": Goal(limit=0.33),
    "added_p50_vs_litellm_2k": Goal(limit=0.15),
    "requests_vs_litellm_32": Goal(limit=8, at_least=True),
    "cpu_vs_passthrough_2k": Goal(limit=4),
    "tokenise_turn400_vs_turn4": Goal(limit=1.5),
    "cpu_ms_turn400_200k": Goal(limit=8),
    "journal_bytes_per_token": Goal(limit=14),
    "tree_build_s_700k": Goal(limit=2),
    "files_per_1000_executions": Goal(limit=50),
    "live_1000_errors": Goal(limit=0),
}


@dataclass(slots=True)
class Figures:
    """Everything the run found, in order."""

    values: dict[str, Figure] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a figure is missing."""

    def put_lag(self, name: str, milliseconds: list[float]) -> None:
        """Median and 99th percentile."""
        ordered = sorted(milliseconds)
        for percent in (50, 99):
            self.put(f"{name}_p{percent}", ordered[int(percent / 100 * (len(ordered) - 1))])

    def put(self, name: str, value: float | None, reason: str = "") -> None:
        self.values[name] = None if value is None else _short(value)
        if value is None:
            self.reasons[name] = reason

    def table(self) -> str:
        lines = [f"{'figure':<40}{'value':>12}{'goal':>10}  "]
        for name, value in self.values.items():
            goal = GOALS.get(name)
            verdict = ""
            if goal is not None:
                verdict = "not measured" if not isinstance(value, (int, float)) else "ok" if goal.met(value) else "missed"
            told = f"{'-' if value is None else value!s:>12}"
            lines.append(f"{name:<40}{told}{goal or ''!s:>10}  {verdict}{' ' + self.reasons[name] if name in self.reasons else ''}")
        return "\n".join(lines)

    def missed(self) -> list[str]:
        """Goals that are not met, those without a figure included."""
        values = ((name, goal, self.values.get(name)) for name, goal in GOALS.items())
        return [name for name, goal, value in values if not isinstance(value, (int, float)) or not goal.met(value)]


def _short(value: float) -> float | int:
    """Four significant digits."""
    return value if isinstance(value, int) else float(f"{value:.4g}")
