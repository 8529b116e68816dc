"""The end of the run: the last save where a person or an allocation stops it, those that stop first, the rest, the other nodes, this process.

Invariants: after `begin` nothing is started; EndRun comes once, after the last child is gone everywhere and every node that is there
knows that it may go (or had the time of a farewell to hear of it).
"""

from gyre_hpc.machines.base import CancelTimer, Effect, Note, SetTimer, Start
from gyre_hpc.machines.supervision.actions import EndRun
from gyre_hpc.machines.supervision.child import Child, ChildState
from gyre_hpc.machines.supervision.children import Children
from gyre_hpc.machines.supervision.last_save import SAVE_AGAIN, LastSave
from gyre_hpc.machines.supervision.remote import Remote
from gyre_hpc.machines.supervision.settings import STOPPED, SupervisionSettings
from gyre_hpc.protocol.supervision import FinishRun, SaveAnswer

STAGE, FAREWELL, END, TICK = "stage", "farewell", "end", "tick"
CONTROLLER = "controller"
_FAREWELL_TICKS = 3


class Ending:
    """Begins with the first FinishRun."""

    def __init__(self, settings: SupervisionSettings, children: Children, remote: Remote) -> None:
        self._settings, self._children, self._remote = settings, children, remote
        self._last_save = LastSave(settings)
        self.finish: FinishRun | None = None
        self.all_told = False
        """Everybody was told to end, not only those that stop first."""
        self.is_ended = False
        self._is_asked = False
        """By a person."""
        self._is_farewell = False
        self._is_farewell_over = False

    def begin(self, finish: FinishRun) -> list[Effect]:
        """Only the first one counts; told once more to stop, it waits for no save any longer."""
        if self.finish is not None:
            return self._saved() if finish.exit_code == STOPPED else []
        self.finish = finish
        effects: list[Effect] = [Note("run_finishing", {"exit_code": finish.exit_code, "reason": finish.reason})]
        for child in self._children.all:
            if child.state is ChildState.waiting:
                effects.append(CancelTimer(child.key("backoff")))
            if not child.is_running:
                child.state = ChildState.over
        controller = self._children.get(CONTROLLER)
        if finish.exit_code == STOPPED and controller is not None and controller.state is ChildState.live:
            return effects + self._last_save.begin(finish.reason)
        return effects + self._stop_first()

    def asked(self, reason: str) -> list[Effect]:
        """A person wants the end. Where an allocation stops the run already, the person's reason is what counts: nothing follows then."""
        before, is_news = self.finish, not self._is_asked
        self._is_asked = True
        if before is None:
            return self.begin(FinishRun(STOPPED, reason))
        if before.exit_code == STOPPED and is_news:
            self.finish = FinishRun(STOPPED, f"{reason}, while it was ending: {before.reason}")
        return []

    def save_told(self, answer: SaveAnswer) -> list[Effect]:
        """By the controller."""
        return self._last_save.told(answer) if answer.waits_s > 0 else self._saved()

    def timer(self, key: str) -> list[Effect]:
        """Of the last save."""
        return self._last_save.ask_again() if key == SAVE_AGAIN else self._saved()

    def _saved(self) -> list[Effect]:
        return [*self._last_save.over(), *self._stop_first()] if self._last_save.is_waiting else []

    def _stop_first(self) -> list[Effect]:
        finish = self.finish
        assert finish is not None
        effects: list[Effect] = []
        if not self._remote.all:
            effects.append(CancelTimer(TICK))  # other nodes hear of us, and are missed, until the end
        for child in self._children.all:
            if child.is_running and child.name in self._settings.first_to_stop:
                effects += self._children.stop(child, finish.reason)
        effects.append(SetTimer(STAGE, self._settings.grace_s))
        return effects + self.tell_all_after_first()

    def tell_all_after_first(self) -> list[Effect]:
        """Stop the rest once those that stop first are gone."""
        first = [child for child in self._children.all if child.name in self._settings.first_to_stop]
        if self.finish is None or self.all_told or any(child.is_running for child in first):
            return []
        return self.tell_all()

    def tell_all(self) -> list[Effect]:
        if self.finish is None or self.all_told:
            return []
        self.all_told = True
        effects: list[Effect] = [*self._last_save.over(), CancelTimer(STAGE)]
        for child in self._children.all:
            if child.is_running:
                effects += self._children.stop(child, self.finish.reason)
        return effects

    def unkillable(self, child: Child) -> list[Effect]:
        """Not even SIGKILL ended it (a hanging disk or device): the end of the run must not wait for it for ever. On a node that is
        not heard it may merely not know: that node is given up in time."""
        if self.finish is not None:
            if not self._remote.are_heard(tuple(child.places[part] for part in child.parts)):
                return [SetTimer(child.key("gone"), self._settings.grace_s)]
            child.state = ChildState.over
            child.parts.clear()
        return [Note("process_unkillable", {"process": child.name, "incarnation": child.incarnation})]

    def farewell_over(self) -> None:
        self._is_farewell_over = True

    def end_if_over(self) -> list[Effect]:
        if self.finish is None or self.is_ended or self._children.is_any_running:
            return []
        if not (self._remote.have_left or self._is_farewell_over):
            if self._is_farewell:
                return []
            self._is_farewell = True
            return [SetTimer(FAREWELL, _FAREWELL_TICKS * self._settings.tick_s)]
        self.is_ended = True
        return [Start(END, EndRun(self.finish.exit_code, self.finish.reason))]
