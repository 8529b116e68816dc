"""Before an orderly stop: the controller is asked to save what no checkpoint holds, and the stop waits as long as it says, within a bound.

Invariant: the wait ends by the controller's word, by its end, by a second order to stop, or by a timer; never later than save_s.
"""

from gyre_hpc.machines.base import CancelTimer, Effect, Send, SetTimer
from gyre_hpc.machines.supervision.settings import SupervisionSettings
from gyre_hpc.protocol.supervision import SaveAnswer, SaveNow

SAVE, SAVE_AGAIN = "save", "save_again"
_TIMERS = (SAVE, SAVE_AGAIN)


class LastSave:
    """Begun at most once."""

    def __init__(self, settings: SupervisionSettings) -> None:
        self._settings = settings
        self.is_waiting = False
        self._is_answered = False
        self._reason = ""

    def begin(self, reason: str) -> list[Effect]:
        self.is_waiting, self._reason = True, reason
        return [SetTimer(SAVE, min(self._settings.save_answer_s, self._settings.save_s)), *self.ask_again()]

    def ask_again(self) -> list[Effect]:
        """A message may be lost, and so may its answer."""
        question = Send("controller", SaveNow(self._reason))
        return [question, SetTimer(SAVE_AGAIN, self._settings.save_again_s)] if self.is_waiting else []

    def told(self, answer: SaveAnswer) -> list[Effect]:
        """It is worth waiting. The first such answer sets the bound: later ones would move it on for ever."""
        is_first, self._is_answered = self.is_waiting and not self._is_answered, True
        return [SetTimer(SAVE, min(answer.waits_s, self._settings.save_s))] if is_first else []

    def over(self) -> list[Effect]:
        was_waiting, self.is_waiting = self.is_waiting, False
        return [CancelTimer(key) for key in _TIMERS] if was_waiting else []
