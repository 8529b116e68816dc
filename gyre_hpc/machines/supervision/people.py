"""What people order of a live run: read from the run folder every few seconds, or told by message; answered by a file each.

Invariants (each has a test):
  - an order is carried out at most once in an attempt, and only in the attempt that it names, or that lived when it was written;
  - every order that was read is answered, also one that cannot be understood;
  - a held cell is neither ended nor started again on the controller's order; the end of the run, and setting it aside, go before.
"""

import msgspec

from gyre_hpc.machines.base import Effect, Note, SetTimer, Start
from gyre_hpc.machines.supervision.actions import ReadCommands, WriteAnswer
from gyre_hpc.machines.supervision.child import Child, Policy
from gyre_hpc.machines.supervision.children import Children
from gyre_hpc.machines.supervision.ending import Ending
from gyre_hpc.machines.supervision.settings import SupervisionSettings
from gyre_hpc.protocol.people import Answer, Command, CommandKind, Unreadable, Wish
from gyre_hpc.protocol.process_names import in_short

COMMANDS, ANSWER = "commands", "answer"


class People:
    """`begin` starts the looking; it goes on until the process ends, also while the run is ending."""

    def __init__(self, settings: SupervisionSettings, children: Children, ending: Ending) -> None:
        self._settings, self._children, self._ending = settings, children, ending
        self._answers: dict[str, Answer] = {}
        """By command: of this life of the process."""
        self._writing: set[str] = set()
        self._trouble = ""

    def begin(self) -> list[Effect]:
        return [Start(COMMANDS, ReadCommands())]

    def look(self) -> list[Effect]:
        """The timer fired."""
        return [] if self._ending.is_ended else self.begin()

    def told(self, command: Command | Unreadable) -> list[Effect]:
        """By a file or by a message."""
        if command.id in self._answers:
            return self._answer(command.id)
        if isinstance(command, Unreadable):
            effects, answer, kind = list[Effect](), self._no(_unread(command)), ""
        else:
            (effects, answer), kind = self._carry_out(command), command.wish.kind.value
        self._answers[command.id] = msgspec.structs.replace(answer, kind=kind)
        note = Note("command", {"id": command.id, "kind": kind, "is_done": answer.is_done, "text": answer.text})
        return [note, *effects, *self._answer(command.id)]

    def finished(self, key: str, result: object) -> list[Effect] | None:
        """None: it is none of ours."""
        if key == COMMANDS:
            assert isinstance(result, tuple)
            self._trouble = ""
            return [*(effect for command in result for effect in self.told(command)), self._again()]
        return self._written(key)

    def failed(self, key: str, reason: str) -> list[Effect] | None:
        """As `finished`. An answer that could not be written is written when its order is read again."""
        if key != COMMANDS:
            return self._written(key)
        news = reason != self._trouble
        self._trouble = reason
        return [self._again(), *([Note("commands_unread", {"reason": reason})] if news else [])]

    def _written(self, key: str) -> list[Effect] | None:
        verb, _, id = key.partition("/")
        if verb != ANSWER:
            return None
        self._writing.discard(id)
        return []

    def _again(self) -> Effect:
        return SetTimer(COMMANDS, self._settings.commands_s)

    def _answer(self, id: str) -> list[Effect]:
        if id in self._writing:
            return []
        self._writing.add(id)
        return [Start(f"{ANSWER}/{id}", WriteAnswer(id, self._answers[id]))]

    # wishes

    def _carry_out(self, command: Command) -> tuple[list[Effect], Answer]:
        wish, own = command.wish, self._settings.attempt
        if wish.attempt not in (0, own):
            return [], self._no(f"it was meant for attempt {wish.attempt}, this is {own}")
        if not wish.attempt and command.is_older:
            return [], self._no(f"it is older than attempt {own}")
        if wish.kind is CommandKind.stop:
            return self._stop(wish)
        child = self._children.get(wish.process)
        if child is None:
            names = in_short(child.name for child in self._children.all)
            return [], self._no(f"there is no process {wish.process!r}; there are {names}")
        if wish.kind is CommandKind.stacks:
            return self._stacks(child, wish)
        return [], self._hold(child, wish)

    def _stop(self, wish: Wish) -> tuple[list[Effect], Answer]:
        before, reason = self._ending.finish, wish.reason or "a person stopped it"
        answer = self._yes(f"the run ends: {reason}" if before is None else f"it was ending already: {before.reason}")
        return self._ending.asked(reason), answer

    def _stacks(self, child: Child, wish: Wish) -> tuple[list[Effect], Answer]:
        if not child.is_running:
            return [], self._no(f"{child.name} does not run" + (f": {child.lost}" if child.lost else ""))
        effects = self._children.ask_stacks(child, wish.reason or "a person asked")
        done = self._yes(f"{child.name}, start {child.incarnation}, was asked for its stacks")
        return effects, msgspec.structs.replace(done, files=self._children.stack_files(child))

    def _hold(self, child: Child, wish: Wish) -> Answer:
        if child.policy is not Policy.cell:
            return self._no(f"{child.name} is no cell; only cells can be held")
        if child.set_aside:
            return self._no(f"{child.name} is set aside: {child.lost}")
        child.is_held = wish.kind is CommandKind.hold
        if not child.is_held:
            return self._yes(f"{child.name} goes on as its controller orders")
        return self._yes(f"{child.name} is neither ended nor started again until it is released")

    def _yes(self, text: str) -> Answer:
        return Answer(self._settings.attempt, True, text)

    def _no(self, text: str) -> Answer:
        return Answer(self._settings.attempt, False, text)


def _unread(found: Unreadable) -> str:
    """An order's name has its one answer, so it cannot be mended in place."""
    remedy = "write it anew under another name, as a plain file (docs/formats.md), or use gyre stop, gyre debug"
    return f"commands/{found.id}.json cannot be read: {found.reason}; {remedy}"
