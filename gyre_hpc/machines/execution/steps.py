"""Effects of one step in an execution's life, and the words for its end. Functions of their arguments alone."""

from gyre_hpc.machines.base import CancelTimer, Effect, SetTimer, Start, Stop
from gyre_hpc.machines.execution.actions import HarnessEnd, PrepareWorkspace, RemoveWorkspace, Scored, StopHarness
from gyre_hpc.machines.execution.life import Life, Stage
from gyre_hpc.protocol.to_batch import Ended, ScoreState
from gyre_hpc.protocol.to_runner import Begin

REASON_CHARS = 1000
UNDER_WAY = {Stage.preparing: "prepare", Stage.running: "run", Stage.stopping: "run", Stage.scoring: "score"}
"""Action that is under way at each stage."""
FAULTS = {
    "prepare": "the workspace could not be made",
    "run": "the sandbox could not be started",
    "score": "the workspace could not be scored",
}


def prepare(life: Life) -> list[Effect]:
    """Both deadlines count from here."""
    life.stage = Stage.preparing
    return [
        SetTimer(life.key("soft"), life.begin.soft_deadline_s),
        SetTimer(life.key("hard"), life.begin.hard_deadline_s),
        Start(life.key("prepare"), PrepareWorkspace(life.begin)),
    ]


def shorten(life: Life, begin: Begin, now: float) -> list[Effect]:
    """It turned out to need less time: what its calls took in an earlier life they do not take again."""
    is_counting = life.stage in (Stage.preparing, Stage.running)
    if not is_counting or begin.soft_deadline_s >= life.begin.soft_deadline_s:
        return []
    life.begin, past = begin, now - life.began_at
    return [
        SetTimer(life.key("soft"), max(begin.soft_deadline_s - past, 0.0)),
        SetTimer(life.key("hard"), max(begin.hard_deadline_s - past, 0.0)),
    ]


def stop_harness(life: Life, grace_s: float) -> list[Effect]:
    """Ask it to end; the grace leaves time to kill and score before the hard deadline."""
    life.stage = Stage.stopping
    return [Start(life.key("term"), StopHarness(life.id, False)), _grace(life, grace_s)]


def _grace(life: Life, grace_s: float) -> SetTimer:
    left = max(0.0, life.begin.hard_deadline_s - life.begin.soft_deadline_s)
    return SetTimer(life.key("grace"), min(grace_s, left / 3))


def kill_again(life: Life | None, verb: str, grace_s: float) -> list[Effect]:
    """Of the actions no step waits for: a kill that failed is tried again, or the harness would hold its room until its hard
    deadline. A polite stop that failed is followed by the kill; a workspace that stays is swept away at the next start."""
    is_up = life is not None and life.stage in (Stage.running, Stage.stopping)
    return [_grace(life, grace_s)] if life is not None and is_up and verb == "kill" else []


def clear(life: Life, under_way: str) -> list[Effect]:
    """No timer, no action, no workspace is left of it."""
    effects: list[Effect] = [CancelTimer(life.key(verb)) for verb in ("soft", "hard", "grace", "scoring")]
    if under_way:
        effects.append(Stop(life.key(under_way)))
    return [*effects, Start(life.key("clean"), RemoveWorkspace(life.id))]


def shortfall_of(life: Life, end: HarnessEnd) -> str:
    """Why what it left is a partial result; empty if it ended by its own rules."""
    if end.limit:
        return f"limit on {end.limit} broken"
    if life.shortfall or end.finished:
        return life.shortfall
    how = f"killed by signal {-end.code}" if end.code < 0 else f"exit code {end.code}"
    return f"harness {how}: {end.tail.strip()}"


def ended_of(life: Life, now: float, state: ScoreState, score: Scored | None, reason: str) -> Ended:
    return Ended(
        execution=life.id,
        state=state,
        score=score.value if score else None,
        passed=score.passed if score else False,
        reason=reason[-REASON_CHARS:],
        wall_s=now - life.began_at,
        parts=score.parts if score else {},
        life=life.number,
    )
