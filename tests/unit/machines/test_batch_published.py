"""Cells hear of new weights only once the disk has them: a controller that forgot a version would order cells back."""

from gyre_hpc.machines.base import Effect, Persisted, Send
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.records import Published
from gyre_hpc.machines.batch.state import persist
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_cell import Order
from tests.fakes.batch_bench import CELLS, report, tell, training


def ordered(effects: list[Effect]) -> list[tuple[str, Version | None]]:
    return [(effect.to, effect.message.version) for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Order)]


def with_new_weights() -> BatchMachine:
    made = training()
    for cell in CELLS:
        tell(made, 1.0, report(cell, 2, update=0))
    made.state.version = Version(0, 1)
    persist(made.state, Published(Version(0, 1), 0), lambda state, now: [])
    return made


def test_no_order_leaves_while_a_version_is_not_durable() -> None:
    made = with_new_weights()
    for second in range(2, 9):
        assert not ordered(tell(made, float(second), report("cell-1", second + 1, update=0)))
    (key,) = made.state.pending
    assert len(ordered(made.handle(9.0, Persisted(key)))) == len(CELLS)
