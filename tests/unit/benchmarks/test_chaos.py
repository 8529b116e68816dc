"""Arithmetic of the chaos benchmark: whom it kills, what it counts, what it calls broken."""

from collections import Counter

from benchmarks.chaos.figures import Figures, state_at, unresolved
from benchmarks.chaos.unreceived import Unreceived
from benchmarks.chaos.victims import Deck, Kind, Scene
from gyre_hpc.observability.events import Event

SCENE = Scene(cells={"cell-1": "train", "cell-2": "rollout", "cell-3": "lost"}, gateways=("gateway-0", "gateway-1"), runners=("runner-0",))


def drawn(seed: int, scene: Scene = SCENE, num: int = 8) -> list[tuple[Kind, str]]:
    deck = Deck(seed, 30)
    return [one for one in (deck.draw(scene) for _ in range(num)) if one is not None]


def test_each_kind_comes_once_a_round_in_an_order_of_the_seed():
    for seed in range(20):
        victims = drawn(seed)
        assert Counter(kind for kind, _ in victims[:4]) == Counter(kind for kind, _ in victims[4:]) == Counter(Kind)
        assert victims == drawn(seed)
    assert len({tuple(drawn(seed)) for seed in range(20)}) > 5


def test_nobody_is_killed_as_what_it_is_not():
    for kind, name in [one for seed in range(20) for one in drawn(seed)]:
        assert name in SCENE.of(kind)
        assert name != "cell-3"


def test_a_kind_of_which_nobody_is_there_is_put_off_and_not_dropped():
    deck = Deck(0, 30)
    without = Scene(cells={"cell-2": "rollout"}, gateways=("gateway-0",), runners=("runner-0",))
    assert {deck.draw(without)[0] for _ in range(3)} == set(Kind) - {Kind.satellite}  # type: ignore[index]
    assert deck.draw(without) is None
    assert deck.draw(SCENE) == (Kind.satellite, "cell-1")


def test_pauses_lie_around_the_mean():
    deck = Deck(1, 30)
    pauses = [deck.pause_s() for _ in range(200)]
    assert 20 <= min(pauses) < 23 and 37 < max(pauses) <= 40


def test_what_a_dead_shard_counted_is_kept_and_its_late_echo_is_not_counted_again():
    counter = Unreceived()
    counter.count({"gateway-0": {"unreceived": 5, "eval_unreceived": 1}, "gateway-1": {"unreceived": 2, "sampled": 9}})
    assert counter.total == 8
    counter.restarted("gateway-0")
    counter.restarted("cell-1")
    counter.count({"gateway-0": {"unreceived": 5, "eval_unreceived": 1}})
    assert counter.total == 8
    counter.count({"gateway-0": {"unreceived": 40}})
    assert counter.total == 48
    counter.count({"gateway-0": {"unreceived": 3}})
    assert counter.total == 51, "what falls was begun anew"


def event(kind: str, time: float = 0.0, process: str = "controller", **fields: object) -> Event:
    return Event(time, time, process, 1, kind, fields)


def test_an_execution_is_resolved_by_its_end_or_by_another_one_in_its_place():
    events = [
        event("execution_began", execution="a", purpose="train"),
        event("execution_began", execution="b", purpose="train"),
        event("execution_began", execution="e", purpose="eval"),
        event("execution_ended", execution="a", purpose="train"),
        event("execution_restarted", execution="b.1", instead_of="b"),
    ]
    assert unresolved(events) == {"b.1"}
    assert unresolved([*events, event("execution_ended", execution="b.1", purpose="train")]) == set()


def test_the_state_at_a_kill_is_the_last_one_before_it():
    events = [
        event("cell_state", 1, cell="cell-1", state="train", reason="waits_for_commit"),
        event("applied", 2, process="gateway-0"),
        event("cell_state", 3, cell="cell-1", state="lost", reason=""),
    ]
    assert state_at(events, "cell-1", 2.5) == "train waits_for_commit"
    assert state_at(events, "cell-1", 0.5) == "no word yet"
    assert state_at(events, "gateway-0", 2.5) == "after applied"


def test_broken_promises_are_named():
    good = Figures(kills=3, tokens_lost=0, tokens_resampled=0, tokens_unreceived=192, executions_unresolved=0, orphans=0, updates=5)
    assert good.broken(64, 5) == []
    bad = Figures(kills=3, tokens_lost=1, tokens_resampled=2, tokens_unreceived=193, executions_unresolved=3, orphans=4, updates=4)
    assert len(bad.broken(64, 5)) == 6
