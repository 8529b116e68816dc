"""What follows from the end of a child: a pause and the next start, a loss for the controller to judge, or the end of the run."""

from gyre_hpc.machines.base import CancelTimer, Effect, Note, SetTimer
from gyre_hpc.machines.supervision.child import Child, ChildState, Policy
from gyre_hpc.machines.supervision.children import Children
from gyre_hpc.machines.supervision.ending import Ending
from gyre_hpc.machines.supervision.settings import REFUSED, SupervisionSettings
from gyre_hpc.protocol.supervision import FinishRun


class Exits:
    """Told of each end once."""

    def __init__(self, settings: SupervisionSettings, children: Children, ending: Ending) -> None:
        self._settings, self._children, self._ending = settings, children, ending

    def part_over(self, now: float, child: Child, part: int, reason: str, code: int) -> list[Effect]:
        """A part of its newest incarnation is gone; the others follow."""
        if child.part_ended(part, reason, code):
            return self._exited(now, child)
        return self._children.stop(child, reason)

    def pause(self, child: Child, failures: int) -> Effect:
        """Longer after each failure, so that what dies at its start does not take the machine with it."""
        return SetTimer(child.key("backoff"), min(self._settings.backoff_cap_s, self._settings.backoff_s * 2 ** (failures - 1)))

    def _exited(self, now: float, child: Child) -> list[Effect]:
        end = child.end
        assert end is not None
        child.url, child.lost = "", child.lost if end.asked else end.reason
        effects: list[Effect] = [CancelTimer(child.key(verb)) for verb in ("start", "stacks", "grace", "gone")]
        fields = {"process": child.name, "incarnation": child.incarnation, "code": end.code, "reason": child.lost}
        effects.append(Note("process_ended", fields))
        if self._ending.finish is not None or child.set_aside:
            child.state = ChildState.over
            return effects + self._ending.tell_all_after_first()
        if end.code == REFUSED and not end.asked:
            child.state = ChildState.over
            refused = f"{child.name} refused its configuration; see logs/{child.name}.log"
            return effects + self._ending.begin(FinishRun(REFUSED, refused))
        return effects + self._after_end(now, child, end.code)

    def _after_end(self, now: float, child: Child, code: int) -> list[Effect]:
        if child.policy is Policy.cell:
            child.state = ChildState.lost
            child.count_failure(now, self._settings.crash_window_s)
            return self._children.spawn(child) if child.restart_wanted and not child.is_held else []
        if child.policy is Policy.extra and code == 0:
            child.state = ChildState.over
            return []
        child.state = ChildState.waiting
        settings = self._settings
        failures = child.count_failure(now, settings.crash_window_s)
        if failures > settings.crash_limit:
            often = f"{child.name} failed {failures} times within {settings.crash_window_s:g} s"
            return self._ending.begin(FinishRun(1, f"{often}, last: {child.lost}; see logs/{child.name}.log"))
        return [self.pause(child, failures)]
