"""The cell machine under random orders (lost, doubled, reordered) and random outcomes of its steps.

The driver checks at every effect: engine and trainer never awake together, no micro-batch twice within (update, fence),
manifest = accumulated, applied persisted before reported, states along the drawn lifecycle. Here: it always arrives.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.machines.cell import CellSettings
from gyre_hpc.machines.cell.actions import AbortReduce, Reduce
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_batch import CellState, CommitPhase, HandIn, KvFacts
from gyre_hpc.protocol.to_cell import ApplyOrder, CommitOrder, FitOrder, KvOrder, KvTarget, Order
from gyre_hpc.scheduler.migration import Conversation
from tests.fakes.cell_driver import CellDriver, leases

SOURCES = ("http://other",)
RAW = Version(0, -1)
HELD = (("cell-8", 1), ("cell-9", 2))
KV = KvOrder((KvTarget("cell-5", 600), KvTarget("cell-6", 600)), ("train-0-0-0",), 2.0)


@st.composite
def histories(draw: st.DrawFn) -> list[Order]:
    """Orders as a batch machine would number them: seq, term, update, fence and generation only grow."""
    term = update = fence = generation = 0
    role, is_core = draw(st.sampled_from(list(Role))), draw(st.booleans())
    ordinal = 0
    orders = []
    warms = is_core and draw(st.booleans())
    if warms:
        role = Role.train
        orders.append(Order(seq=1, term=0, role=role, version=RAW, is_core=True, update=0, fit=FitOrder("warm", ("u",), 1, Version(0, 0))))
    for seq in range(1 + warms, draw(st.integers(2 + warms, 12 + warms))):
        change = draw(st.sampled_from(["role", "role", "leases", "fence", "update", "commit", "apply", "hand_in", "version"]))
        commit = apply = hand_in_to = None
        accepted: tuple[tuple[str, int], ...] = ()
        if change == "role":
            role = Role.train if role is Role.rollout else Role.rollout
            term += 1
        if change == "fence":
            fence += 1
        if change in ("update", "version"):
            update, fence = update + 1, fence + draw(st.integers(0, 1))
        if change == "hand_in" and role is Role.train:
            role, term, hand_in_to = Role.rollout, term + 1, "http://core"
        version = Version(0, update)
        if change in ("commit", "apply"):
            generation += draw(st.integers(0, 1)) or int(generation == 0)
            members = ("cell-0",) if is_core and draw(st.booleans()) else ("cell-0", "cell-1") if is_core else ("cell-1", "cell-0")
            commit = CommitOrder(generation, members, draw(st.sampled_from([None, "a:1"])), "n", draw(st.booleans()))
            accepted = draw(st.sampled_from([(), (HELD[0],), HELD])) if is_core else ()
            if change == "apply" and is_core:
                apply = ApplyOrder(update, f"h{draw(st.integers(0, 1))}", 4, Version(0, update + 1))
        ordinal += draw(st.integers(0, 2))
        listed = leases(*(f"{update}:{number}" for number in range(max(0, ordinal - 2), ordinal)))
        orders.append(
            Order(
                seq=seq, term=term, role=role, version=version, sources=() if is_core and seq == 1 else SOURCES, is_core=is_core, update=update,
                fence=fence, leases=listed, hand_in_to=hand_in_to, accepted=accepted, commit=commit, apply=apply,
                kv=KV if role is Role.train and term % 3 else None,
            )
        )  # fmt: skip
    return orders


def random_world(data: st.DataObject, cell: CellDriver, orders: list[Order]) -> None:
    """Deliver orders lost, doubled and overtaken, while steps end well or badly and timers fire in any order."""
    pool = list(orders)
    cell.body.kv = KvFacts(data.draw(st.sampled_from(["none", "pages", "pages", "shared"])), 500)
    cell.body.conversations = tuple(Conversation(call=f"train-0-0-0/{i}", num_tokens=200 + i, is_live=bool(i % 2)) for i in range(3))
    for _ in range(data.draw(st.integers(5, 60))):
        timers = sorted(key for key in cell.timers if key != "register")
        choices = ["held"] + ["order"] * bool(pool) + ["end", "end", "fail"] * bool(cell.running) + ["timer"] * bool(timers)
        match data.draw(st.sampled_from(choices)):
            case "order":
                order = pool[data.draw(st.integers(0, min(2, len(pool) - 1)))]
                if data.draw(st.booleans()):
                    pool.remove(order)
                cell.give(order)
            case "held":
                cell.body.held = [
                    HandIn(name, fence, (f"x:{name}",)) for name, fence in HELD[: max(len(cell.body.held), data.draw(st.integers(0, 2)))]
                ]
                cell.body.is_read = data.draw(st.booleans())
            case "end":
                cell.end(data.draw(st.sampled_from(sorted(cell.running))))
            case "fail":
                key = data.draw(st.sampled_from(sorted(cell.running)))
                cell.fail(type(cell.running[key]))
            case "timer":
                cell.fire(data.draw(st.sampled_from(timers)))


def arrive(cell: CellDriver) -> None:
    """No more faults. An aborted Reduce does fail, as its group is gone."""
    if cell.is_running(AbortReduce) and cell.is_running(Reduce):
        cell.fail(Reduce, "broken off")
    cell.body.is_read = False
    cell.settle(beats=6)


@settings(max_examples=250, deadline=None)
@given(histories(), st.data())
def test_every_run_of_orders_ends_where_the_last_order_says(orders: list[Order], data: st.DataObject):
    cell = CellDriver(CellSettings(name="cell-0", incarnation=1))
    random_world(data, cell, orders)
    last = orders[-1]
    cell.give(last)
    cell.body.held = [HandIn(name, fence, (f"x:{name}",)) for name, fence in HELD]
    arrive(cell)
    report = cell.report
    assert report.order_seq == last.seq and report.term == last.term
    assert report.state.value == last.role.value
    assert (report.update, report.fence) == (last.update, last.fence)
    if last.role is Role.rollout:
        assert (cell.body.engine, cell.body.trainer, cell.body.admission) == (last.version, None, last.term)
        assert report.commit is None
    elif last.fit is not None:
        assert (report.fitted, report.version, cell.ran.count("fit")) == ("warm", last.fit.version, 1)
    else:
        made = last.apply is not None and report.applied is not None and report.applied.update == last.update
        ahead = report.applied is not None and report.applied.version == cell.body.trainer
        assert cell.body.trainer == last.version or made or ahead
        assert (cell.body.engine, cell.body.admission) == (None, None)
        expect_training(cell, last)


def expect_training(cell: CellDriver, last: Order) -> None:
    report = cell.report
    if last.commit is not None:
        assert report.commit is not None and report.commit.generation == last.commit.generation
        if last.commit.reduce and last.commit.address is not None:
            assert report.commit.phase in (CommitPhase.reduced, CommitPhase.failed)
        return
    assert report.commit is None
    if not cell.machine.state.total.closed:
        assert {lease.id for lease in last.leases} <= {fact.id for fact in report.accumulated}


@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_the_same_inputs_give_the_same_effects(orders: list[Order], data: st.DataObject):
    cell = CellDriver(CellSettings(name="cell-0", incarnation=1))
    heard: list[tuple[float, object, list]] = []
    handle = cell.machine.handle
    cell.machine.handle = lambda now, told: heard.append((now, told, handle(now, told))) or heard[-1][2]  # type: ignore[method-assign]
    random_world(data, cell, orders)
    fresh = CellDriver(CellSettings(name="cell-0", incarnation=1))
    for now, told, effects in heard:
        assert fresh.machine.handle(now, told) == effects


@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_an_update_is_made_at_most_once_per_manifest(orders: list[Order], data: st.DataObject):
    cell = CellDriver(CellSettings(name="cell-0", incarnation=1))
    random_world(data, cell, orders)
    made = [(record.applied.update, record.applied.manifest_hash) for record in cell.persisted]
    assert len(made) == len(set(made))
    assert all(state is not CellState.lost for state in cell.states)
