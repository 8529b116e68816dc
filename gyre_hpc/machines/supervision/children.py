"""Starts and stops children wherever they are: here by actions, on other nodes by what the orders say.

Invariants: a child is started only where all its nodes are; the parts of a cell beside the first one are started once it said where it
listens; the end of one part stops the others; a child is gone when all its parts are.
"""

from gyre_hpc.machines.base import CancelTimer, Effect, Note, SetTimer, Start
from gyre_hpc.machines.supervision.actions import DumpStacks, KillProcess, SpawnProcess, TerminateProcess
from gyre_hpc.machines.supervision.child import Child, ChildState, Policy
from gyre_hpc.machines.supervision.settings import SupervisionSettings
from gyre_hpc.protocol.supervision import Register, RendezvousOpen, WriteStacks


class Children:
    """All children of the run by name."""

    def __init__(self, settings: SupervisionSettings) -> None:
        self._settings = settings
        given = [(Policy.service, settings.services), (Policy.cell, settings.cells), (Policy.extra, settings.extras)]
        self.by_name: dict[str, Child] = {}
        for policy, names in given:
            for name in names:
                self.add(name, policy, settings.places.get(name, (settings.name,)))

    def add(self, name: str, policy: Policy, places: tuple[str, ...]) -> Child:
        child = self.by_name[name] = Child(name=name, policy=policy, places=places)
        return child

    @property
    def all(self) -> tuple[Child, ...]:
        return tuple(self.by_name.values())

    @property
    def cells_first(self) -> list[Child]:
        """They load the most before they can register."""
        return sorted(self.by_name.values(), key=lambda child: child.policy is not Policy.cell)

    def on(self, node: str) -> list[Child]:
        return [child for child in self.by_name.values() if node in child.places]

    def forget(self, node: str) -> None:
        """What was on a node alone that is gone."""
        for child in [child for child in self.on(node) if child.places == (node,)]:
            del self.by_name[child.name]

    def get(self, name: str) -> Child | None:
        return self.by_name.get(name)

    @property
    def is_any_running(self) -> bool:
        return any(child.is_running for child in self.by_name.values())

    def spawn(self, child: Child) -> list[Effect]:
        """The next incarnation: its first part."""
        child.incarnation += 1
        child.state, child.url, child.lost = ChildState.starting, "", ""
        child.restart_wanted, child.silent_ticks, child.directory = False, 0, -1
        child.parts, child.rendezvous, child.is_killing, child.end = set(), "", False, None
        child.stacks_asked, child.is_writing_stacks, child.is_told = 0, False, False
        child.stacks_again_at = 0.0
        return [
            *self._start_part(child, 0),
            SetTimer(child.key("start"), self._settings.start_s(child.policy)),
            Note("process_started", {"process": child.name, "incarnation": child.incarnation}),
        ]

    def opened(self, message: RendezvousOpen) -> list[Effect]:
        """Part 0 of a cell listens: the others come."""
        child = self.by_name.get(message.process)
        if child is None or message.incarnation != child.incarnation or child.state is not ChildState.starting or child.rendezvous:
            return []
        child.rendezvous = message.address
        return [effect for part in range(1, len(child.places)) for effect in self._start_part(child, part)]

    def registered(self, message: Register) -> list[Effect]:
        child = self.by_name.get(message.process)
        if child is None or message.incarnation != child.incarnation or child.state not in (ChildState.starting, ChildState.live):
            return []
        child.silent_ticks, child.directory = 0, max(child.directory, message.directory)
        child.url = message.url
        if child.state is ChildState.live:
            return []
        child.state, child.lost = ChildState.live, ""
        fields = {"process": child.name, "incarnation": child.incarnation, "pid": message.pid}
        return [CancelTimer(child.key("start")), Note("process_registered", fields)]

    def stop(self, child: Child, reason: str, *, is_fault: bool = False) -> list[Effect]:
        """is_fault: it did not do what it should have. Then its stacks may tell why, as do those of one that does not end."""
        if child.state is ChildState.stopping:
            return []
        child.state, child.url, child.lost = ChildState.stopping, "", reason
        grace = SetTimer(child.key("grace"), self._settings.grace_s)
        if is_fault:
            return [*self.ask_stacks(child, reason), *self.end_here(child), grace]
        return [*self.end_here(child), SetTimer(child.key("stacks"), self._settings.grace_s / 2), grace]

    def end_here(self, child: Child) -> list[Effect]:
        """Tell the part on this node to end, once; nodes beside this one go by their orders."""
        if child.state is not ChildState.stopping or child.is_told or child.is_writing_stacks or child.part_at(self._settings.name) is None:
            return []
        child.is_told = True
        return [Start(child.key("term"), TerminateProcess(child.name, child.incarnation))]

    def stack_files(self, child: Child) -> str:
        """Where its newest start writes them, a pattern below the run folder."""
        return f"logs/{child.name}-{self._settings.attempt}-{child.incarnation}.*stacks"

    def ask_stacks(self, child: Child, reason: str) -> list[Effect]:
        """All its parts, here and elsewhere."""
        child.stacks_asked += 1
        fields = {"process": child.name, "incarnation": child.incarnation, "reason": reason, "files": self.stack_files(child)}
        if child.part_at(self._settings.name) is None or child.is_writing_stacks:
            return [Note("stacks_asked", fields)]
        child.is_writing_stacks = True
        return [Start(child.key("stacks"), DumpStacks(child.name, child.incarnation)), Note("stacks_asked", fields)]

    def write_stacks(self, now: float, order: WriteStacks) -> list[Effect]:
        """Those that run, and were not asked a short time ago: the order comes again and again as long as they are late."""
        effects: list[Effect] = []
        for name in order.processes:
            child = self.by_name.get(name)
            if child is None or not child.is_running or now < child.stacks_again_at:
                continue
            child.stacks_again_at = now + self._settings.stacks_again_s
            effects += self.ask_stacks(child, order.reason)
        return effects

    def stacks_over(self, key: str) -> list[Effect]:
        """Written or not: what waited for them goes on."""
        child = self.by_name.get(key.split("/")[1]) if key.startswith("stacks/") else None
        if child is None or key != child.key("stacks"):
            return []
        child.is_writing_stacks = False
        return self.end_here(child)

    def kill(self, child: Child) -> list[Effect]:
        """It had its time to end."""
        child.is_killing = True
        gone = SetTimer(child.key("gone"), self._settings.grace_s)
        if child.part_at(self._settings.name) is None:
            return [gone]
        return [Start(child.key("kill"), KillProcess(child.name, child.incarnation)), gone]

    def kill_again(self, key: str) -> list[Effect]:
        """A kill that failed is tried again; a polite one that failed is followed by it anyway."""
        stopping = [child for child in self.by_name.values() if child.state is ChildState.stopping]
        return [SetTimer(child.key("grace"), self._settings.grace_s) for child in stopping if key == child.key("kill")]

    def _start_part(self, child: Child, part: int) -> list[Effect]:
        child.parts.add(part)
        if child.places[part] != self._settings.name:
            return []  # by its node's orders
        rendezvous = child.rendezvous if part else ""
        return [Start(child.key("child"), SpawnProcess(child.name, child.incarnation, part, rendezvous))]
