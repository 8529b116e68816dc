"""A check that cannot fail says nothing: what one good performance left, damaged in every way that matters."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import pytest

from gyre_hpc.protocol.journal import CallBegin, CallEnd, Delivered, Record
from gyre_hpc.rehearsal.base import Moment
from gyre_hpc.rehearsal.company import Company, Rehearsal, company
from gyre_hpc.rehearsal.scenarios import scenario_named
from gyre_hpc.rehearsal.verdict import Evidence, Outcome, judge

Damage = Callable[[Evidence], Evidence]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, Company]:
    """A role switch in the middle of an answer of the shell agent."""

    async def play() -> tuple[Evidence, Company]:
        rehearsal = Rehearsal(harness="shell_agent", folder=tmp_path_factory.mktemp("rehearsal"))
        async with company(rehearsal) as here:
            _, performance = await here.perform(scenario_named("role_switch"))
            return performance.evidence, here

    return asyncio.run(play())


def judged(good: tuple[Evidence, Company], damage: Damage = lambda evidence: evidence) -> Outcome:
    evidence, here = good
    return judge(damage(evidence), here.chat_format)


def records(change: Callable[[list[Record]], Sequence[Record]]) -> Damage:
    return lambda evidence: replace(evidence, records=change(list(evidence.records)))


def without_last(kind: type) -> Damage:
    return records(lambda all: [one for one in all if one is not [record for record in all if isinstance(record, kind)][-1]])


def every(kind: type, **fields: object) -> Damage:
    return records(lambda all: [msgspec.structs.replace(one, **fields) if isinstance(one, kind) else one for one in all])


def said_twice(all: list[Record]) -> list[Record]:
    """The last call once more, under a name of its own."""
    last = [record for record in all if isinstance(record, CallBegin)][-1].call
    copies = [msgspec.structs.replace(one, call=f"{last}7") for one in all if getattr(one, "call", "") == last]
    return [*all, *copies]


def test_a_good_performance_is_found_good(good: tuple[Evidence, Company]) -> None:
    outcome = judged(good)
    assert outcome.problems == [] and outcome.num_continued == 1
    assert (dict(outcome.roles), dict(outcome.branches)) == ({"main": 3}, {"root": 1})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda evidence: replace(evidence, wrong_files=["a.txt is missing"]), "a.txt is missing"),
        (lambda evidence: replace(evidence, counters={"lost": 2}), "2 tokens lost"),
        (lambda evidence: replace(evidence, counters={"resampled": 1}), "1 tokens resampled"),
        (lambda evidence: replace(evidence, faults=["digest_mismatch"]), "the gateway noted"),
        (lambda evidence: replace(evidence, played=replace(evidence.played, moments=[])), "happened"),
        (lambda evidence: replace(evidence, played=replace(evidence.played, moments=[Moment.cell_lost])), "happened"),
        (lambda evidence: replace(evidence, played=replace(evidence.played, is_late=True)), "did not end in time"),
        (lambda evidence: replace(evidence, played=replace(evidence.played, seen=evidence.played.seen[1:])), "computed on other ids"),
        (every(CallEnd, digest="0" * 32), "computed on other ids"),
        (every(CallEnd, cells=("cell-0",)), "no call went on at another cell"),
        (every(CallEnd, finish="failed"), "ended failed"),
        (without_last(Delivered), "not delivered"),
        (without_last(CallEnd), "has no end"),
        (records(said_twice), "was answered 2 times"),
        (every(CallBegin, branch="edited_history"), "rendered anew"),
        (every(CallBegin, role="sub_agent"), "sub-agents"),
    ],
)
def test_damage_is_found(good: tuple[Evidence, Company], damage: Damage, words: str) -> None:
    assert any(words in problem for problem in judged(good, damage).problems)
