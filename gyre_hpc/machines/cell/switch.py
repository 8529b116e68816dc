"""Which step comes next on the way to the role the newest order asks for: a function of what is awake and the order.

rollout -> train: close admission, (list conversations, move their KV), abort what is live, (wait until nobody else is at
pages here any more), engine sleeps, (snapshot), trainer wakes.
train -> rollout: (hand in), trainer sleeps, (snapshot), engine wakes, admission opens.
As each step is chosen from the physical state alone, a newer order in mid-switch neither skips nor repeats one.
"""

from dataclasses import dataclass

import msgspec

from gyre_hpc.machines.cell.actions import (
    AbortLive,
    Action,
    CloseAdmission,
    InitModel,
    LoadCheckpoint,
    OpenAdmission,
    QuietKv,
    SleepEngine,
    SleepTrainer,
    UpdateEngineWeights,
    WakeEngine,
    WakeTrainer,
)
from gyre_hpc.machines.cell.body import Body
from gyre_hpc.machines.cell.giving import Giving
from gyre_hpc.machines.cell.settings import CellSettings
from gyre_hpc.machines.cell.training import Sum
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_batch import Applied, KvFacts
from gyre_hpc.protocol.to_cell import Order


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to do before something comes."""

    reason: str
    settled: bool = False
    """The cell is in the role and at the version of the order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What this cell finished of what orders may still ask for."""

    applied: Applied | None = None
    fitted: str = ""


def must_fit(order: Order, done: Done) -> bool:
    return order.fit is not None and order.fit.id != done.fitted


def target_version(order: Order, body: Body, done: Done) -> Version | None:
    """The version to serve or to train from; None: there is none yet."""
    newest = max(body.store, default=None)
    if order.fit is not None and must_fit(order, done) and order.version in (None, order.fit.version):
        # The fit makes that version, so it starts from an earlier one: what the cell has, or freshly made parameters.
        earlier = [version for version in body.store if version != order.fit.version]
        return body.trainer or max(earlier, default=Version(order.fit.version.lineage, order.fit.version.step - 1))
    if order.version is None:
        return body.version or newest
    held = body.trainer or body.parked
    if order.role is Role.train and held is not None and _is_ahead(order, held, done):
        return held
    return order.version


def _is_ahead(order: Order, trainer: Version, done: Done) -> bool:
    """The order was written before its author knew that this cell had applied or fitted what it asks for.

    To go back to older parameters would cost the core its optimizer state."""
    assert order.version is not None
    if trainer <= order.version:
        return False
    if done.applied is not None and done.applied.update == order.update and done.applied.version == trainer:
        return True
    return order.fit is not None and order.fit.id == done.fitted and order.fit.version == trainer


def from_sources(order: Order, version: Version) -> bool:
    """The snapshot is to be pulled. A core that is given a checkpoint needs its optimizer too, so it loads."""
    return bool(order.sources) and version == order.version and not (order.is_core and order.checkpoint)


def obtain(order: Order, version: Version, settings: CellSettings) -> Action | Wait:
    """How to get a version that the own store lacks."""
    if from_sources(order, version):
        return Wait(reason=f"pull of snapshot {version} ({settings.pull_deadline_s:g} s a try)")
    if order.checkpoint is not None and version == order.version:
        return LoadCheckpoint(folder=order.checkpoint, version=version, deadline_s=settings.save_deadline_s)
    if order.is_core:
        return InitModel(version=version, deadline_s=settings.switch_deadline_s)
    return Wait(reason=f"an order that names a source of version {version}")


def leave_rollout(order: Order, body: Body, giving: Giving, kv: KvFacts, settings: CellSettings) -> Action | None:
    """Next step to an engine that sleeps, once its KV was given away (giving.py); None: it does, within its memory limit."""
    deadline_s = settings.switch_deadline_s
    if body.admission is not None:
        return CloseAdmission(term=order.term, deadline_s=deadline_s)
    if body.engine is not None and not body.quiet:
        return AbortLive(moved=giving.moved, deadline_s=deadline_s)
    if body.engine is not None and giving.must_count(kv):
        return QuietKv(deadline_s=deadline_s)
    if body.engine is not None or body.half_asleep or body.above_limit:
        return SleepEngine(deadline_s=deadline_s)
    return None


def towards_train(order: Order, body: Body, total: Sum, done: Done, settings: CellSettings) -> Action | Wait:
    """Next step to a trainer awake at the target version, once the engine sleeps."""
    deadline_s = settings.switch_deadline_s
    version = target_version(order, body, done)
    if version is None:
        return Wait(reason="a first version")
    if body.trainer == version:
        return Wait(reason="", settled=True)
    if version not in body.store:
        return obtain(order, version, settings)
    restore = body.trainer is None and total.can_restore(order, version)
    return WakeTrainer(version=version, restore_sum=restore, deadline_s=deadline_s)


def towards_rollout(order: Order, body: Body, total: Sum, done: Done, settings: CellSettings) -> Action | Wait:
    """Next step to an engine that serves the target version under the order's term. (Hand-ins come before.)"""
    deadline_s = settings.switch_deadline_s
    if body.half_asleep:
        return SleepEngine(deadline_s=deadline_s)
    if body.trainer is not None or body.half_awake:
        return SleepTrainer(keep_sum=bool(total.facts) and not body.half_awake, deadline_s=deadline_s)
    version = target_version(order, body, done)
    if version is None:
        return Wait(reason="a first version")
    lacking = obtain(order, version, settings) if version not in body.store else None
    if body.engine is None:
        return lacking or WakeEngine(version=version, deadline_s=deadline_s)
    if body.engine != version and not isinstance(lacking, Wait):
        return lacking or UpdateEngineWeights(version=version, deadline_s=deadline_s)
    if body.admission != order.term:
        return OpenAdmission(term=order.term, deadline_s=deadline_s)
    return lacking or Wait(reason="", settled=True)
