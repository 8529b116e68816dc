"""What people and the jobs of single nodes add to a seed, drawn apart so that everything else of it is what it was."""

import random

import msgspec

from gyre_hpc.protocol.people import CommandKind
from gyre_hpc.simulation.people import UNREADABLE
from gyre_hpc.simulation.scenario import Fault, FaultKind, Scenario

_SHARE = 0.6
"""Of all seeds."""
_FEWEST_CELLS = 4
"""That a seed must have had."""
_KINDS = (CommandKind.stacks, CommandKind.hold, CommandKind.hold, CommandKind.release, CommandKind.stop)
_TARGETS = ("cell-0", "cell-1", "cell-2", "cell-3", "gateway-0", "runner-0", "controller", "nobody")
_SATELLITES = (0, 0, 0, 1, 2, 3)
_HELD_S = (2.0, 6.0, 12.0)
"""Shorter and longer than a cell may be silent."""


def with_people(scenario: Scenario) -> Scenario:
    """Some orders, at most one of them to stop; and signals, pauses and strangers among nodes, where there are nodes."""
    dice = random.Random(f"people {scenario.seed}")
    faults: list[Fault] = []
    if dice.random() < _SHARE:
        faults += _orders(dice)
    joiners = [fault for fault in scenario.faults if fault.kind is FaultKind.node_join]
    if joiners:
        joins = dice.choice(joiners)
        faults.append(Fault(kind=FaultKind.node_leave, target=joins.target, at=joins.at + dice.uniform(0.2, 6.0)))
        kind, cells = dice.choice([("another", 1.0), ("", 0.0)])
        faults.append(Fault(kind=FaultKind.node_join, target="supervisor-jxn0", at=dice.uniform(1.0, 9.0), share=cells, other=kind))
    if scenario.nodes or joiners:
        target = f"supervisor-{dice.randint(1, scenario.nodes)}" if scenario.nodes else joiners[0].target
        faults.append(Fault(kind=FaultKind.pause, target=target, at=dice.uniform(2.0, 12.0), for_s=dice.choice([3.0, 7.0, 16.0])))
        faults.append(Fault(kind=FaultKind.node_leave, target=target, at=dice.uniform(6.0, 14.0)))
    if scenario.nodes > 1 and scenario.cells > _FEWEST_CELLS:
        # It has one cell, and never comes.
        faults.append(Fault(kind=FaultKind.node_off, target="supervisor-2", at=0.02))
    every = sorted((*scenario.faults, *faults), key=lambda fault: fault.at)
    return msgspec.structs.replace(scenario, faults=tuple(every), satellites=dice.choice(_SATELLITES))


def _orders(dice: random.Random) -> list[Fault]:
    kinds = dice.choices([kind.value for kind in _KINDS] + [UNREADABLE], k=dice.randint(2, 5))
    found: list[Fault] = []
    for kind in kinds:
        if kind == CommandKind.stop.value and any(fault.other == kind for fault in found):
            continue
        found.append(
            Fault(
                kind=FaultKind.order,
                target="" if kind in (CommandKind.stop.value, UNREADABLE) else dice.choice(_TARGETS),
                other=kind,
                at=dice.uniform(0.5, 14.0),
                for_s=dice.choice(_HELD_S) if kind == CommandKind.hold.value else 0.0,
                share=dice.choice([0.0, 0.0, 1.0, 2.0]),
            )
        )
    fails = dice.choice(["ReadCommands", "WriteAnswer", "DumpStacks"])
    found.append(Fault(kind=FaultKind.broken, target="supervisor-0", on=fails, nth=dice.choice([1, 2])))
    return found
