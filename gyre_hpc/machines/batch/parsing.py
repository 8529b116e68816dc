"""A parser that never understands the model: the run would go on for days and learn nothing, so it ends with the reason.

Shards count tool calls from their journals, whatever restarts in between; warm starts are scripted and count apart.
"""

from gyre_hpc.machines.base import Effect, Note
from gyre_hpc.machines.batch.phases import finish
from gyre_hpc.machines.batch.state import State

_PURPOSES = ("", "eval_")


def watch_tool_calls(state: State, now: float) -> list[Effect]:
    """End the run once `malformed_window` calls in a row could not be parsed."""
    window = state.settings.malformed_window
    parsed, malformed = _sum(state, "tool_calls"), _sum(state, "tool_calls_malformed")
    if parsed > state.tool_calls_parsed:
        state.tool_calls_parsed, state.malformed_before = parsed, malformed
    in_a_row = malformed - state.malformed_before
    if not window or in_a_row < window or state.finished:
        return []
    reason = (
        f"{in_a_row} tool calls in a row could not be parsed, and none could (gateway.malformed_window={window}): "
        "this chat format's parser is not for this model; set model.template and model.parser"
    )
    return [Note("alarm", {"what": "no tool call can be parsed", "reason": reason}), *finish(state, now, 1, reason)]


def _sum(state: State, name: str) -> int:
    return sum(report.tokens.get(purpose + name, 0) for report in state.gateways.values() for purpose in _PURPOSES)
