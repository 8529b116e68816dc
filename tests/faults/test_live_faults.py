"""One fault of each kind at its worst step, each in a whole run of real processes; nothing is lost, and nobody notices.

Engines are in the deterministic mode and weights are held (trainer.lr=0), so each disturbed run must say what the undisturbed one
said: the same calls, the same token ids, the same log-probs to the last bit. Where it strikes: tests/fakes/striking.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import striking
from tests.fakes.live_faults import Said, expect_same_calls, expect_sound, said_of
from tests.fakes.old_terms import Replayed, replay, steps_after
from tests.fakes.whole_run import WholeRun

UPDATES = 2
SMALL = (
    "algo.groups_per_batch=3", "algo.group_size=4", "cluster.cells=2", "cluster.switch_deadline_s=8",
    "evaluation.before=false", "evaluation.after=false", "evaluation.tasks=0", "warm_start.executions=30", "warm_start.epochs=2",
    "engine.deterministic=true", "engine.max_batch=384", "trainer.lr=0", "trainer.micro_batch_tokens=48", "algo.temperature=1.8", "harness.max_output_tokens=96",
    "scheduler.lead_factor=0", "scheduler.dwell_s=0", "scheduler.theta0=1", "cluster.runner_capacity=6", "gateway.progress_tokens=4", "suite.soft_deadline_s=300", "suite.hard_deadline_s=310", "debug.record_inputs=true",
)  # fmt: skip
"""Answers of a hardly trained model are long, steps of many rows slow, and few executions run at once: so cells change roles in
the middle of calls."""
pytestmark = pytest.mark.timeout(300)


class Bench:
    """Runs that share one warm start."""

    def __init__(self, cache: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._cache, self._monkeypatch, self.folder = cache, monkeypatch, folder

    def run(self, *strikes: str, overrides: tuple[str, ...] = ()) -> WholeRun:
        for name, value in striking.environment(self.folder, *strikes).items():
            self._monkeypatch.setenv(name, value)
        return WholeRun(self.folder, *SMALL, f"paths.cache={self._cache}", *overrides)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def reference(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What the undisturbed run said."""
    with WholeRun(tmp_path_factory.mktemp("reference"), *SMALL, f"paths.cache={cache}", f"algo.updates={UPDATES}") as run:
        assert run.wait_end() == 0, run.printed
        expect_sound(run, UPDATES)
        said = said_of(run)
    assert len(said) == UPDATES * 3 * 4 and sum(map(len, said.values())) > len(said)
    return said


@pytest.fixture
def bench(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    return Bench(cache, monkeypatch, tmp_path)


def outlive(
    bench: Bench, reference: Said, *strikes: str, lost: tuple[str, ...] = (), overrides: tuple[str, ...] = (), updates: int = UPDATES
) -> WholeRun:
    """The run is struck as told, ends well, and said what the undisturbed one said."""
    with bench.run(*strikes, overrides=(*overrides, f"algo.updates={updates}")) as run:
        assert run.wait_end() == 0, run.printed
        assert sorted(striking.struck(bench.folder)) == sorted(strikes), run.printed
        expect_sound(run, updates, lost)
        expect_same_calls(run, reference)
    return run


def test_cells_die_giving_kv_away_between_abort_and_sleep_and_in_the_middle_of_a_gradient(bench: Bench, reference: Said):
    strikes = ("satellite:in_move_kv", "cell:after_abort", "satellite:in_accumulate")
    cells = ("cell-0", "cell-1", "cell-2")
    run = outlive(bench, reference, *strikes, lost=cells, overrides=("cluster.cells=3",), updates=3)
    assert len(run.events("cell_lost")) == len(strikes)


def test_a_gateway_dies_in_the_middle_of_an_answer(bench: Bench, reference: Said):
    run = outlive(bench, reference, "gateway-0.1:mid_stream")
    (replayed,) = [event for event in run.events("journal_replayed") if event.fields["records"]]
    assert replayed.fields["open_calls"] >= 1


def test_the_controller_starts_again_in_a_switch_and_between_an_update_and_its_publication(bench: Bench, reference: Said):
    run = outlive(bench, reference, "controller.1:in_switch", "controller.2:applied_not_published")
    assert len(run.events("controller_restarted")) == 2
    assert sorted({event.fields["update"] for event in run.events("version_published")} - {-1}) == list(range(UPDATES))


def test_one_rank_of_two_falls_silent_in_the_cores_role_change(bench: Bench, reference: Said):
    """The core, so that the run has to wait for it."""
    ranks = ("cluster.ranks_per_cell=2", "cluster.tensor_parallel=1", "cluster.switch_deadline_s=4")
    run = outlive(bench, reference, "cell-0.1:silent_follower", lost=("cell-0",), overrides=ranks)
    (lost,) = run.events("cell_lost")
    assert lost.fields["cell"] == "cell-0" and lost.fields["reason"].startswith("role change not done within 10 s")


@pytest.fixture(scope="module")
def late(cache: Path, reference: Said, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WholeRun, Replayed]]:
    """A run on a slow disk, in which somebody repeats what was said in an older term."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        bench = Bench(cache, monkeypatch, tmp_path_factory.mktemp("late"))
        with bench.run("gateway-0.1:slow_disk", "controller.1:slow_disk", overrides=(f"algo.updates={UPDATES}",)) as run:
            cell = run.wait_event("switch", lambda event: event.fields["direction"] == "train_to_rollout").fields["cell"]
            replayed = replay(run, cell)
            assert run.wait_end() == 0, run.printed
            assert len(striking.struck(bench.folder)) == 2
            yield run, replayed


def test_a_slow_disk_makes_answers_late_and_nothing_else(late: tuple[WholeRun, Replayed], reference: Said):
    run, _ = late
    expect_sound(run, UPDATES)
    expect_same_calls(run, reference)


def test_messages_of_an_old_term_are_refused_and_change_nothing(late: tuple[WholeRun, Replayed], reference: Said):
    run, replayed = late
    status, term = replayed.generate
    assert status == 409 and term >= replayed.term > replayed.order.term
    assert replayed.order_of_old_attempt == 409
    told = steps_after(run, replayed)
    assert told and not any(told), "an order of an older term starts nothing"
    expect_same_calls(run, reference)
