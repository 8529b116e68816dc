"""What somebody should look at is said once, and again only after a while: a full disk fails many writes at each try, for hours."""

from gyre_hpc.machines.base import Effect, Note
from gyre_hpc.machines.batch.state import State

AGAIN_S = 60.0
EPISODE_S = 10.0
"""One that was not raised for so long is over: the next is another one."""
_SHOWN = 5
"""In the status."""


class Alarms:
    """Of one run."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        """Sentence of an episode that goes on -> when it was told last."""
        self._raised: dict[str, float] = {}
        """-> when it was raised last."""

    def sift(self, state: State, now: float, effects: list[Effect]) -> list[Effect]:
        """`effects` without alarms that only go on; the status shows the others."""
        if not any(isinstance(effect, Note) and effect.kind == "alarm" for effect in effects):
            return effects
        self._raised = {sentence: at for sentence, at in self._raised.items() if now - at < EPISODE_S}
        self._told = {sentence: at for sentence, at in self._told.items() if sentence in self._raised and now - at < AGAIN_S}
        return [effect for effect in effects if not isinstance(effect, Note) or effect.kind != "alarm" or self._is_news(state, now, effect)]

    def _is_news(self, state: State, now: float, alarm: Note) -> bool:
        sentence = ", ".join(str(value) for value in alarm.fields.values())
        self._raised[sentence] = now
        if sentence in self._told:
            return False
        self._told[sentence] = now
        state.alarms = [*(known for known in state.alarms if known != sentence), sentence][-_SHOWN:]
        return True
