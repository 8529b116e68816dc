"""Latency, rate and CPU of every target under the same load: windows in turn, medians of each."""

import asyncio
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.gateway.bodies import Conversation, NewBodies, ShortBodies
from benchmarks.gateway.client import Requests, Window, connect, load
from benchmarks.gateway.goals import Figures
from benchmarks.gateway.plan import BODY_1M, BODY_2K, Plan
from benchmarks.gateway.targets import Target

EXECUTIONS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    name: str
    size: int
    connections: int
    kind: str = "short"
    """short, new or long: what its bodies are (bodies.py)."""


CASES = (
    Case(name="2k", size=BODY_2K, connections=1),
    Case(name="2k", size=BODY_2K, connections=32),
    Case(name="1m", size=BODY_1M, connections=1, kind="long"),
    Case(name="2k of new text", size=BODY_2K, connections=1, kind="new"),
)


@dataclass(slots=True)
class Row:
    """Windows of one target in one case."""

    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    """CPU of the first request of a long conversation."""
    errors: int = 0

    def add(self, window: Window, cpu_s: float) -> None:
        ordered = sorted(window.latencies) or [float("nan")]
        self.p50_ms.append(1e3 * statistics.median(ordered))
        self.p99_ms.append(1e3 * ordered[int(0.99 * (len(ordered) - 1))])
        self.rate.append(window.rate)
        self.cpu_ms.append(1e3 * cpu_s / max(1, len(window.latencies)))
        self.errors += window.errors

    def median(self, name: str) -> float:
        return statistics.median(getattr(self, name) or [float("nan")])


class Speed:
    """All windows. `rows[case][target]`."""

    def __init__(self, targets: list[Target], plan: Plan) -> None:
        self._targets, self._plan = targets, plan
        self._bodies: dict[str, ShortBodies | NewBodies] = {"short": ShortBodies(), "new": NewBodies()}
        self._number = 0
        self.rows: dict[tuple[str, int], dict[str, Row]] = {}

    def run(self, rounds: int, seconds: float, say: Callable[[str], None]) -> None:
        for target in self._targets:
            self._window(target, CASES[0], seconds / 2, Row())
        for number in range(rounds):
            for case in CASES:
                for target in self._targets:
                    row = self.rows.setdefault((case.name, case.connections), {}).setdefault(target.name, Row())
                    self._window(target, case, seconds, row)
            say(f"round {number + 1} of {rounds}")

    def _window(self, target: Target, case: Case, seconds: float, row: Row) -> None:
        requests = self._next_turns(target, row) if case.kind == "long" else self._distinct(target, case.kind)
        before = _cpu(target)
        window = asyncio.run(_settled(load(target.port, requests, case.connections, seconds)))
        row.add(window, _cpu(target) - before)

    def _distinct(self, target: Target, kind: str) -> Requests:
        bodies = self._bodies[kind]

        def make() -> bytes:
            self._number += 1
            return target.request(self._number % EXECUTIONS, bodies.next())

        return make

    def _next_turns(self, target: Target, row: Row) -> Requests:
        """A new conversation; its first request is sent here, apart from the window."""
        self._number += 1
        execution = EXECUTIONS + self._number
        conversation = Conversation(f"{self._number:09d}", self._plan.text)
        before = _cpu(target)
        row.errors += asyncio.run(_settled(_once(target.port, target.request(execution, conversation.next())))) != 200
        row.first_ms.append(1e3 * (_cpu(target) - before))
        return lambda: target.request(execution, conversation.next())

    def table(self, case: Case) -> str:
        rows = self.rows[case.name, case.connections]
        floor = rows["stub (floor)"].median("p50_ms")
        lines = [f"\n{case.name}: bodies of {case.size} B, {case.connections} connection(s)" + _TOLD[case.kind]]
        lines.append(f"{'target':<22}{'p50 ms':>9}{'added':>9}{'p99 ms':>9}{'req/s':>9}{'CPU ms/req':>12}{'first ms':>10}{'errors':>8}")
        for name, row in rows.items():
            first = f"{row.median('first_ms'):>10.1f}" if case.kind == "long" else f"{'':>10}"
            lines.append(
                f"{name:<22}{row.median('p50_ms'):>9.3f}{row.median('p50_ms') - floor:>9.3f}{row.median('p99_ms'):>9.2f}"
                f"{row.median('rate'):>9.0f}{row.median('cpu_ms'):>12.3f}{first}{row.errors:>8}"
            )
        return "\n".join(lines)

    def tell(self, figures: Figures, missing: str) -> None:
        """`missing`: why there is no LiteLLM, if there is none."""
        one, many, long, new = (self.rows[case.name, case.connections] for case in CASES)
        gyre, theirs, bare = "gyre gateway", "litellm", "aiohttp pass-through"
        for name, rows, what in (("cpu_vs_litellm_2k", one, "cpu_ms"), ("cpu_vs_litellm_1m", long, "cpu_ms")):
            figures.put(name, _ratio(rows, gyre, theirs, what), missing)
        figures.put("added_p50_vs_litellm_2k", _added(one, gyre) / _added(one, theirs) if theirs in one else None, missing)
        bare_disk = "gyre without fsync"
        figures.put(
            "added_p50_vs_litellm_2k_without_fsync", _added(one, bare_disk) / _added(one, theirs) if theirs in one else None, missing
        )
        figures.put("requests_vs_litellm_32", _ratio(many, gyre, theirs, "rate"), missing)
        figures.put("cpu_vs_passthrough_2k", _ratio(one, gyre, bare, "cpu_ms"))
        figures.put("cpu_ms_2k", one[gyre].median("cpu_ms"))
        figures.put("cpu_ms_2k_new_text", new[gyre].median("cpu_ms"))
        figures.put("cpu_ms_2k_32", many[gyre].median("cpu_ms"))
        figures.put("cpu_ms_1m_next_turn", long[gyre].median("cpu_ms"))
        figures.put("cpu_ms_1m_first_turn", long[gyre].median("first_ms"))
        figures.put("errors", sum(row.errors for rows in self.rows.values() for row in rows.values()))


_TOLD = {
    "short": "; 64 executions in turn; bodies differ in one line",
    "new": "; 64 executions in turn; no line was in a body before",
    "long": "; every request the next turn of one conversation; `first ms`: CPU of its first request",
}


async def _settled(work):  # type: ignore[no-untyped-def]  # what it wraps decides
    """Work that a proxy does after its answer left belongs to the window."""
    result = await work
    await asyncio.sleep(0.05)
    return result


async def _once(port: int, request: bytes) -> int:
    connection = await connect(port)
    status, _ = await connection.ask(request)
    connection.close()
    return status


def _cpu(target: Target) -> float:
    return target.process.cpu_s() if target.process is not None else 0.0


def _ratio(rows: dict[str, Row], one: str, other: str, what: str) -> float | None:
    return rows[one].median(what) / rows[other].median(what) if other in rows else None


def _added(rows: dict[str, Row], name: str) -> float:
    return rows[name].median("p50_ms") - rows["stub (floor)"].median("p50_ms")
