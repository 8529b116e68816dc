"""The last save before an orderly stop: the core is told at once, and the stop hears how long it is worth waiting.

Nothing is waited for where every update is in a checkpoint. While something is, no new commit begins: it would only be lost.
"""

from gyre_hpc.machines.base import Effect, Note, Send
from gyre_hpc.machines.batch.state import State
from gyre_hpc.protocol.supervision import SaveAnswer

_SLOWER = 3.0
"""A save while everything ends may take so many times the slowest measured one."""
_MARGIN_S = 5.0
_UNKNOWN_S = 300.0
"""No save was measured in this attempt: as long as the stop may wait at all (its own bound is lower)."""


def save_now(state: State, now: float) -> list[Effect]:
    """The supervisor asks, again and again: always answered."""
    state.is_saving = True
    return _answer(state, now)


def tell_when_over(state: State, now: float) -> list[Effect]:
    """With every step: the answer again once there is nothing more to wait for."""
    if not state.is_saving or not state.save_waits or _lacking(state):
        return []
    return _answer(state, now)


def _answer(state: State, now: float) -> list[Effect]:
    lacking = _lacking(state)
    answer = SaveAnswer(_worth_s(state), lacking) if lacking else SaveAnswer(0.0, _why_nothing(state))
    is_first, is_news, state.save_waits = not state.save_waits, lacking != state.save_waits, lacking
    state.save_until = now + answer.waits_s if is_first else state.save_until
    send = Send("supervisor-0", answer)
    return [send, Note("last_save", {"reason": answer.reason, "waits_s": answer.waits_s})] if is_news else [send]


def _lacking(state: State) -> str:
    """What is still to be saved; empty: nothing, or nothing that can be."""
    core, commit, version = state.fleet.core, state.commit, state.version
    if state.finished or version is None or not state.is_settled or not core.is_usable or core.report is None:
        return ""
    if commit is not None and commit.intent:
        return f"update {state.update} is being made"
    if version.step > 0 and core.report.saved != version and core.has(version):
        return f"{version} is being saved"
    return ""


def _why_nothing(state: State) -> str:
    core = state.fleet.core
    if state.version is None or not state.is_settled:
        return "there are no weights yet"
    return f"{state.version} is saved" if core.is_usable else f"{core.name} cannot save"


def _worth_s(state: State) -> float:
    report = state.fleet.core.report
    measured = report.save_s if report is not None else 0.0
    return _SLOWER * measured + _MARGIN_S if measured else _UNKNOWN_S
