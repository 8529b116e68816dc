"""What follows for the children when nodes come, speak, start again, leave or fall silent."""

from gyre_hpc.machines.base import CancelTimer, Effect, Note
from gyre_hpc.machines.supervision.child import Child, ChildState, Policy, ending
from gyre_hpc.machines.supervision.children import Children
from gyre_hpc.machines.supervision.ending import Ending
from gyre_hpc.machines.supervision.exits import Exits
from gyre_hpc.machines.supervision.nodes import Hearing, Node, NodeState
from gyre_hpc.machines.supervision.remote import ARRIVAL, Remote
from gyre_hpc.machines.supervision.settings import NODE_LOST, SupervisionSettings
from gyre_hpc.protocol.supervision import ChildEnd, FinishRun, NodeReport

_KILLED = -9


class Presence:
    """`heard` returns the node that must be dismissed, if any: its address is known once the directory was published."""

    def __init__(self, settings: SupervisionSettings, children: Children, remote: Remote, ending: Ending, exits: Exits) -> None:
        self._settings, self._children, self._remote = settings, children, remote
        self._ending, self._exits = ending, exits
        self._next_cell = len(settings.cells)
        """Numbers are not used again: whoever speaks of cell-7 means one and the same for the whole attempt."""
        self._to_dismiss: list[Node] = []

    def heard(self, now: float, report: NodeReport) -> list[Effect]:
        node, hearing = self._remote.hear(report)
        effects: list[Effect] = []
        match hearing:
            case Hearing.old:
                return []
            case Hearing.late | Hearing.back:
                if hearing is Hearing.late or node.is_planned:
                    self._to_dismiss.append(node)
                    return []
                effects += self._join_or_dismiss(node, report)
            case Hearing.first if node.is_planned:
                effects += self._arrive(node)
            case Hearing.first:
                effects += self._join_or_dismiss(node, report)
            case Hearing.other_life:
                effects += self._lose_parts(now, node)
        for end in report.ended:
            effects += self._ended(now, node, end)
        if report.leaving and node.state is NodeState.here:
            effects += self.give_up(now, node, f"it leaves: {report.leaving}")
        return effects

    def dismissals(self) -> list[Effect]:
        """Nodes without a part in the run hear that it is over for them."""
        nodes, self._to_dismiss = self._to_dismiss, []
        return [effect for node in nodes for effect in self._remote.dismiss(node)]

    def tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for node in self._remote.tick():
            effects += self.give_up(now, node, f"no report for {node.silent_ticks} ticks of {self._settings.tick_s:g} s")
        self._remote.forget_gone()
        return effects

    def overdue(self, now: float, name: str) -> list[Effect]:
        """The time in which a planned node should have come is over."""
        node = self._remote.late_arrival(name)
        if node is None or self._ending.finish is not None:
            return []
        return self.give_up(now, node, f"its supervisor did not report within {self._settings.start_deadline_s:g} s")

    def give_up(self, now: float, node: Node, reason: str) -> list[Effect]:
        """The node is gone for the attempt, and what is there with it."""
        effects = self._remote.give_up(node, reason)
        lost = f"node {node.title} is lost: {reason}"
        for child in self._children.on(node.name):
            effects += self._lose(now, child, node, lost)
        core = self._children.get(self._settings.core)
        if core is not None and node.name in core.places:
            effects += self._ending.begin(FinishRun(NODE_LOST, f"{core.name} cannot go on: {lost}"))
        return effects

    def _join_or_dismiss(self, node: Node, report: NodeReport) -> list[Effect]:
        refusal = self._refusal(report)
        if refusal is None:
            return self._join(node, report)
        node.give_up(refusal)
        self._to_dismiss.append(node)
        return [Note("node_refused", {"node": node.name, "host": node.host, "reason": refusal})] if refusal else []

    def _refusal(self, report: NodeReport) -> str | None:
        """Why a node that nobody planned has no part in the run; None: it has one. Empty: it needs none any more."""
        offer, settings = report.offer, self._settings
        if report.leaving or self._ending.finish is not None:
            return ""
        if offer.kind != settings.kind:
            return f"cells of this run are on {settings.kind or 'no GPU'}, this node has {offer.kind or 'none'}; a run takes one kind"
        if not settings.takes_joiners or offer.cells < 1:
            return "it brings no cell that the run could take"
        return None

    def _arrive(self, node: Node) -> list[Effect]:
        effects: list[Effect] = [CancelTimer(f"{ARRIVAL}/{node.name}"), Note("node_arrived", {"node": node.name, "host": node.host})]
        if self._ending.finish is not None:
            return effects
        for child in self._children.cells_first:
            if child.incarnation == 0 and child.state is ChildState.waiting and self._remote.are_here(child.places):
                effects += self._children.spawn(child)
        return effects

    def _join(self, node: Node, report: NodeReport) -> list[Effect]:
        node.state, node.lost = NodeState.here, ""
        names = [f"cell-{self._next_cell + index}" for index in range(report.offer.cells)]
        self._next_cell += len(names)
        effects: list[Effect] = [Note("node_joined", {"node": node.name, "host": node.host, "cells": names})]
        for name in names:
            effects += self._children.spawn(self._children.add(name, Policy.cell, (node.name,)))
        return effects

    def _lose_parts(self, now: float, node: Node) -> list[Effect]:
        """Its supervisor was started again, and its children had gone with the one before."""
        effects: list[Effect] = [Note("node_restarted", {"node": node.name, "host": node.host})]
        for child in self._children.on(node.name):
            part = child.part_at(node.name)
            if part is not None:
                effects += self._exits.part_over(now, child, part, f"the supervisor on {node.title} was started again", _KILLED)
        return effects

    def _ended(self, now: float, node: Node, end: ChildEnd) -> list[Effect]:
        child = self._children.get(end.process)
        if child is None or child.incarnation != end.incarnation:
            return []
        part = child.part_at(node.name)
        if part is None:
            return []
        return self._exits.part_over(now, child, part, end.reason or ending(end.code), end.code)

    def _lose(self, now: float, child: Child, node: Node, reason: str) -> list[Effect]:
        """Set aside what was there. Of a cell over several nodes the parts elsewhere are stopped."""
        if child.set_aside and not child.is_running:
            return []
        child.set_aside, child.restart_wanted, child.lost = True, False, reason
        if not child.is_running:
            child.state = ChildState.over
            return [CancelTimer(child.key("backoff")), Note("process_set_aside", {"process": child.name, "reason": reason})]
        part = child.part_at(node.name)
        if part is None:
            return self._children.stop(child, reason)
        return self._exits.part_over(now, child, part, reason, _KILLED)
