"""Seed -> scenario. Sizes are at least 4 cells, 2 gateways, 9 executions, 3 updates and 10 faults by time."""

import random
from collections import Counter

import msgspec

from gyre_hpc.config.schema import SchedulerMode, Staleness
from gyre_hpc.simulation.draw_people import with_people
from gyre_hpc.simulation.scenario import Fault, FaultKind, Scenario

_MOMENTS: dict[str, tuple[str, ...]] = {
    "core": (
        "InitModel:end", "CloseAdmission:end", "AbortLive:end", "SleepEngine:end", "WakeTrainer:end", "ZeroSum:end", "FetchMicroBatch:end",
        "Accumulate:begin", "Accumulate:end", "HostGroup:begin", "HostGroup:end", "Reduce:begin", "Reduce:end", "Apply:begin", "Apply:end",
        "SaveCheckpoint:begin", "SaveCheckpoint:end", "AppliedRecord:begin", "AppliedRecord:end", "SleepTrainer:end", "WakeEngine:end",
        "OpenAdmission:end", "LoadCheckpoint:begin", "LoadCheckpoint:end",
    ),
    "satellite": (
        "CloseAdmission:end", "ListConversations:end", "MoveKv:begin", "MoveKv:end", "QuietKv:begin", "AbortLive:begin",
        "AbortLive:end", "SleepEngine:end", "PullSnapshot:begin", "PullSnapshot:end",
        "WakeTrainer:begin", "WakeTrainer:end", "FetchMicroBatch:end", "Accumulate:begin", "Accumulate:end", "HandInSum:begin",
        "HandInSum:end", "Reduce:begin", "Reduce:end", "SleepTrainer:begin", "SleepTrainer:end", "WakeEngine:end", "OpenAdmission:end",
        "UpdateEngineWeights:begin", "UpdateEngineWeights:end",
    ),
    "controller": (
        "AttemptBegun:end", "GroupBegun:begin", "GroupBegun:end", "ExecutionEnded:begin", "ExecutionEnded:end", "FirstCalled:begin",
        "FirstCalled:end", "CommitIntended:begin", "CommitIntended:end", "Published:begin", "Published:end", "LineageBegun:begin",
        "LineageBegun:end", "PrepareGroup:begin", "PrepareGroup:end", "FindCheckpoint:end", "ForgetMicroBatches:end",
        "EvaluationEnded:begin", "ExecutionRestarted:begin",
    ),
    "gateway": (
        "CallBegin:begin", "CallBegin:end", "CallProgress:begin", "CallProgress:end", "CallEnd:begin", "CallEnd:end", "Delivered:begin",
        "Delivered:end", "ExecutionEnd:begin", "ExecutionEnd:end", "EngineAttempt:begin", "EngineAttempt:end", "Reply:begin", "Reply:end",
        "Render:end", "Parse:end",
    ),
    "runner": (
        "Began:begin", "Began:end", "Finish:begin", "Finish:end", "Forgotten:begin", "PrepareWorkspace:end", "ScoreWorkspace:begin",
        "ScoreWorkspace:end", "RunHarness:begin", "RunHarness:end",
    ),
}  # fmt: skip
_BREAKABLE: dict[str, tuple[str, ...]] = {
    "core": (
        "WakeTrainer", "SleepEngine", "MoveKv", "Accumulate", "HostGroup", "Reduce", "Apply", "SaveCheckpoint", "WakeEngine", "FetchMicroBatch",
        "SleepTrainer", "Measure", "UpdateEngineWeights", "OpenAdmission",
    ),
    "satellite": (
        "PullSnapshot", "FetchMicroBatch", "Accumulate", "HandInSum", "Reduce", "WakeTrainer", "SleepEngine", "WakeEngine",
        "UpdateEngineWeights", "AbortLive", "Measure", "ZeroSum", "ListConversations", "MoveKv", "QuietKv",
    ),
    "controller": ("PrepareGroup", "FindCheckpoint", "ForgetMicroBatches", "WriteStatus", "FindWarmStart"),
    "gateway": ("Render", "Reply", "Refuse", "Say", "KeepAlive", "EngineAttempt"),
    "runner": (
        "PrepareWorkspace", "PrepareWorkspace", "RunHarness", "StopHarness", "ScoreWorkspace", "ScoreWorkspace", "RemoveWorkspace",
        "SweepWorkspaces", "MeasureUsage", "RunHarness",
    ),
    "supervisor": ("SpawnProcess", "TerminateProcess", "KillProcess", "MirrorDirectory", "CheckAttempts"),
}  # fmt: skip
_SLOW = (
    ("runner", "PrepareWorkspace"), ("runner", "ScoreWorkspace"), ("gateway", "Reply"), ("supervisor", "KillProcess"), ("core", "Reduce"),
    ("satellite", "HandInSum"), ("satellite", "Accumulate"), ("satellite", "FetchMicroBatch"), ("controller", "PrepareGroup"),
    ("gateway", "Render"), ("satellite", "PullSnapshot"), ("core", "SaveCheckpoint"), ("satellite", "Measure"),
)  # fmt: skip
"""What may take longer than its deadline, in turn."""
_LONG = {"gateway": (18.0,), "controller": (18.0,), "runner": (12.0, 18.0)}
"""Seconds after which others give a part up."""
_SHARES = (3, 3, 2, 1, 2, 2)
_ONLY_BEFORE = {"Apply"}
"""Whether an optimizer step that fails was made is not a question a machine can answer; the shell answers it by dying."""
_WEIGHTS = {
    FaultKind.crash: 8.0, FaultKind.pause: 2.5, FaultKind.cut: 2.5, FaultKind.storm: 1.2, FaultKind.disk_full: 1.5, FaultKind.disk_slow: 1.0,
    FaultKind.bad_start: 0.7, FaultKind.broken: 4.5, FaultKind.stall: 2.5, FaultKind.odd_rank: 1.0,
    FaultKind.preempt: 0.5,
}  # fmt: skip
_PAIRED = 0.2
"""Of all seeds with an even number of cells."""
_ON_NODES = 0.25
_AWAY = (2.0, 5.0, 7.0, 10.0, 13.0, 17.0, 25.0)
"""Seconds: shorter and longer than a node waits for orders, and than it is waited for."""
_SPAN_S = 13.0
"""Faults by time fall into this much of the run."""


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    dice = random.Random(f"scenario {seed}")
    cells = dice.choice([4, 4, 4, 5])
    groups, size = dice.choice([(2, 2), (1, 3), (3, 1)])
    mode = dice.choices(list(SchedulerMode), [4, 1, 1, 1])[0]
    warm = dice.choice([0, 0, 0, 3])
    scenario = Scenario(
        seed=seed,
        cells=cells,
        gateways=2,
        updates=3,
        groups_per_batch=groups,
        group_size=size,
        evals=dice.choice([1, 1, 2]),
        warm=warm,
        warm_cached=warm > 0 and dice.random() < 0.4,
        capacity=dice.choice([4, 6, 8]),
        ranks=dice.choice([1, 2, 2, 3]),
        kv=dice.choices(["pages", "none", "shared", "pd"], [7, 1, 1, 1])[0],
        mode=mode,
        staleness=dice.choices([Staleness.wait, Staleness.window, Staleness.soft], [4, 1, 1])[0],
        max_staleness=dice.choice([0, 1, 1, 2]),
        checkpoint_before_publish=dice.random() < 0.85,
        token_s=dice.choice([0.04, 0.04, 0.04, 0.2]),
        max_calls=dice.choice([1, 64, 64, 64]),
        max_tokens=dice.choice([0, 0, 0, 0, 40]),
    )
    return with_people(_on_nodes(_passing_over(_with_faults(_paired(scenario), dice))))


def _passing_over(scenario: Scenario) -> Scenario:
    """Without a checkpoint before each publish, most save only now and then, and are stopped in order when that matters; drawn apart."""
    if scenario.checkpoint_before_publish:
        return scenario
    dice = random.Random(f"every {scenario.seed}")
    every = dice.choice([1, 2, 3])
    notices = [
        Fault(
            kind=FaultKind.preempt,
            target="cell-0",
            share=1.0,
            for_s=dice.choice([1.0, 12.0, 40.0]),
            on="Apply:end",
            nth=dice.choice([1, 2]),
        )
        for _ in range(dice.choice([0, 1, 1]))
    ]
    return msgspec.structs.replace(scenario, checkpoint_every=every, faults=(*scenario.faults, *notices))


def _on_nodes(scenario: Scenario) -> Scenario:
    """A share of them over several nodes or with nodes that join, drawn apart too."""
    dice = random.Random(f"nodes {scenario.seed}")
    if dice.random() >= _ON_NODES:
        return scenario
    nodes = dice.choice([0, 1, 1, 2, 2, 3])
    faults = [_of_node(dice.randint(1, nodes), dice) for _ in range(dice.choice([1, 1, 2, 3]))] if nodes else []
    for index in range(dice.choice([0, 1, 2]) if nodes else dice.choice([1, 2])):
        for_s = dice.choice([0.0, *_AWAY])
        joins = Fault(
            kind=FaultKind.node_join,
            target=f"supervisor-j{index}n0",
            at=dice.uniform(1.0, 9.0),
            share=float(dice.choice([1, 2])),
            for_s=for_s,
        )
        faults.append(joins)
        if dice.random() < 0.4:
            faults.append(Fault(kind=FaultKind.node_cut, target=joins.target, at=dice.uniform(9.0, 14.0), for_s=dice.choice(_AWAY)))
    every = sorted((*scenario.faults, *faults), key=lambda fault: fault.at)
    return msgspec.structs.replace(scenario, nodes=nodes, faults=tuple(every))


def _of_node(node: int, dice: random.Random) -> Fault:
    """Cuts end before the fence, between fence and giving up, and after it."""
    kind = dice.choice([FaultKind.node_off, FaultKind.node_cut, FaultKind.node_cut])
    for_s = dice.choice(_AWAY) if kind is FaultKind.node_cut else dice.choice([0.0, 2.0, 6.0])
    if dice.random() < 0.6:
        on = dice.choice(("Began:end", "RunHarness:begin", "RunHarness:begin", "ScoreWorkspace:begin"))
        return Fault(kind=kind, target=f"runner-{node}", on=on, nth=dice.choice([1, 1, 2, 3]), for_s=for_s)
    return Fault(kind=kind, target=f"supervisor-{node}", at=dice.uniform(1.0, _SPAN_S), for_s=for_s)


def _paired(scenario: Scenario) -> Scenario:
    """A share of them in pairs, drawn apart so that everything else of a seed is what it was."""
    if scenario.cells % 2 or random.Random(f"pairs {scenario.seed}").random() >= _PAIRED:
        return scenario
    return msgspec.structs.replace(scenario, pairs=True, kv="pd")


def _with_faults(scenario: Scenario, dice: random.Random) -> Scenario:
    """Those by time strike; the aimed ones need their moment to come."""
    faults: list[Fault] = _in_turn(scenario, dice)
    num_crashes: Counter[str] = Counter()
    num_timed, num_aimed = dice.randint(9, 11), dice.randint(4, 6)
    num_timed = max(num_timed, 10 - sum(not fault.on for fault in faults))
    while num_timed or num_aimed:
        fault = _fault(scenario, dice)
        if _comes_once(fault) and any(_comes_once(other) and other.kind is fault.kind for other in faults):
            continue
        if fault.kind is FaultKind.crash and not fault.target.startswith("cell"):
            # More than this many in a row end a run rightly.
            num_crashes[fault.target] += 1
            if num_crashes[fault.target] > 2:
                continue
        if fault.on and num_aimed:
            num_aimed -= 1
        elif not fault.on and num_timed:
            num_timed -= 1
        else:
            continue
        faults.append(fault)
    return msgspec.structs.replace(scenario, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


def _in_turn(scenario: Scenario, dice: random.Random) -> list[Fault]:
    """Each action of each part fails every so many seeds."""
    steps = [(part, on) for part, names in _BREAKABLE.items() for on in dict.fromkeys(names)]
    faults = []
    for place in range(3):
        part, on = steps[(3 * scenario.seed + place) % len(steps)]
        nth = dice.choice([1, 1, 2] if part in ("core", "satellite", "controller") else [1, 4, 7, 10])
        share = 1.0 if on not in _ONLY_BEFORE and dice.random() < 0.4 else 0.0
        faults.append(Fault(kind=FaultKind.broken, target=_name(part, scenario, dice), on=on, nth=nth, share=share))
    part, on = _SLOW[scenario.seed % len(_SLOW)]
    target = _name(part, scenario, dice)
    if on == "KillProcess":
        faults.append(Fault(kind=FaultKind.broken, target=target, on="TerminateProcess"))
    faults.append(Fault(kind=FaultKind.stall, target=target, on=on, nth=dice.choice([1, 2, 4]) if part != "supervisor" else 1, for_s=18.0))
    away = ("runner", "gateway", "controller", "", "")[scenario.seed % 5]
    if away:
        faults.append(
            Fault(
                kind=FaultKind.pause,
                target=_name(away, scenario, dice),
                at=dice.uniform(3.0, 10.0),
                for_s=10.0 if away == "runner" else 16.0,
            )
        )
    if scenario.seed % 2:
        # There are few hand-ins: whoever makes the first one.
        names = [f"cell-{index}" for index in range(1, scenario.cells)]
        faults += [Fault(kind=FaultKind.rot, target=name, on="HandInSum:end", for_s=2.0) for name in names]
    return faults


def _comes_once(fault: Fault) -> bool:
    """More of it would end a run rightly, or be all there is of it."""
    return fault.kind is FaultKind.preempt or (fault.kind is FaultKind.bad_start and fault.target == "cell-0")


def _fault(scenario: Scenario, dice: random.Random) -> Fault:
    kind = dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    part = dice.choices(["core", "satellite", "controller", "gateway", "runner"], [3, 4, 3, 2, 1])[0]
    at = dice.uniform(0.3, _SPAN_S)
    if kind in (FaultKind.broken, FaultKind.stall):
        part = dice.choices(list(_BREAKABLE), _SHARES)[0]
        on = dice.choice(_BREAKABLE[part])
        share = 1.0 if kind is FaultKind.broken and on not in _ONLY_BEFORE and dice.random() < 0.4 else 0.0
        for_s = dice.choice([1.0, 4.0, 9.0, 30.0]) if kind is FaultKind.stall else 0.0
        return Fault(kind=kind, target=_name(part, scenario, dice), on=on, nth=dice.choice([1, 1, 2, 3]), share=share, for_s=for_s)
    if kind is FaultKind.odd_rank:
        on = dice.choice(["SleepEngine", "SleepEngine", "WakeTrainer", "SleepTrainer", "WakeEngine"])
        share = float(on == "SleepEngine" and dice.random() < 0.3)
        return Fault(
            kind=kind, target=_name(dice.choice(["core", "satellite"]), scenario, dice), on=on, nth=dice.choice([1, 1, 2]), share=share
        )
    if kind is FaultKind.preempt:
        if dice.random() < 0.3:
            return Fault(kind=kind, at=at, for_s=dice.choice([1.0, 15.0]), share=1.0)
        survivor = _name(dice.choice(["runner", "gateway", "satellite", "controller"]), scenario, dice) if dice.random() < 0.6 else ""
        return Fault(kind=kind, at=at, target=survivor, for_s=6.0 if survivor else 0.0)
    if kind is FaultKind.storm:
        return Fault(kind=kind, at=at, for_s=dice.uniform(1.0, 6.0), share=dice.choice([0.1, 0.3, 0.6]))
    target = _name(part, scenario, dice)
    if kind is FaultKind.bad_start:
        part = dice.choice(["satellite", "satellite", "core"])
        share = float(dice.choice([1, 2] if part == "core" else [1, 2, 4]))
        for_s = 10.0 if dice.random() < 0.3 else 0.0
        return Fault(kind=kind, target=_name(part, scenario, dice), at=at, share=1.0 if for_s else share, for_s=for_s)
    for_s = 0.0 if kind is FaultKind.crash else dice.choice([0.5, 1.0, 2.0, 4.0, 8.0, *_LONG.get(part, ())])
    share = dice.choice([0.3, 1.5]) if kind is FaultKind.disk_slow else 0.0
    other = ""
    if kind is FaultKind.cut and dice.random() < 0.6:
        other = _name(dice.choice(["core", "satellite", "controller", "gateway"]), scenario, dice)
    if kind in (FaultKind.crash, FaultKind.pause, FaultKind.cut) and dice.random() < 0.6:
        on = dice.choice(_MOMENTS[part])
        return Fault(kind=kind, target=target, other=other, on=on, nth=dice.choice([1, 1, 1, 2, 3, 5]), for_s=for_s)
    return Fault(kind=kind, target=target, other=other, at=at, for_s=for_s, share=share)


def _name(part: str, scenario: Scenario, dice: random.Random) -> str:
    match part:
        case "core":
            return "cell-0"
        case "satellite":
            return f"cell-{dice.randint(1, scenario.cells - 1)}"
        case "gateway":
            return f"gateway-{dice.randint(0, scenario.gateways - 1)}"
        case "runner" | "supervisor":
            return f"{part}-0"
    return part
