"""Facts of a shard: a report holds so many, whatever there are, and in the end all of them arrive once."""

from gyre_hpc.machines.call.outbox import MOST, Outbox
from gyre_hpc.protocol.journal import Replayed
from gyre_hpc.protocol.to_batch import CallReplayed
from tests.fakes.call_parts import Client, row
from tests.fakes.call_world import CallWorld


def replayed(number: int) -> Replayed:
    return Replayed(call=f"train-0-0-0/{number}", life=1, request_hash="", thread="", context="", time=0.0, num_tokens=number)


def test_a_report_holds_the_oldest_facts_and_the_others_follow_as_they_are_acknowledged() -> None:
    outbox, arrived = Outbox(), list[CallReplayed]()
    for number in range(2 * MOST + 7):
        outbox.observe(replayed(number))
    while facts := outbox.facts:
        assert len(facts) <= MOST and outbox.has_more == (len(arrived) < MOST + 7)
        assert outbox.first_fact == len(arrived)
        arrived += [fact for fact in facts if isinstance(fact, CallReplayed)]
        outbox.acknowledge(len(arrived) - 1)
    assert [fact.num_tokens for fact in arrived] == list(range(2 * MOST + 7))


def test_a_shard_with_more_facts_than_a_report_holds_reports_again_as_soon_as_some_are_known() -> None:
    world = CallWorld()
    world.clients.append(Client("train-0-0-0", "main", 1, False))
    world.set_table(row(0))
    world.settle()
    for number in range(MOST + 1):
        world.shard.outbox.observe(replayed(number))
    # The same table once more, as its lease is renewed.
    world.table -= 1
    world.set_table(row(0), acked=MOST - 1)
    assert world.timers["report"] - world.now < world.settings.report_s
