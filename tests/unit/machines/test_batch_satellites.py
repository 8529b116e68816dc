"""When satellite jobs are asked for, and what follows a refusal: told facts by hand."""

from gyre_hpc.machines.base import Effect, Failed, Finished, Note, Start
from gyre_hpc.machines.batch.satellites import KEEP, KeepSatellites, SatelliteJobs, SatellitePace, Satellites
from gyre_hpc.scheduler.base import Decision, Facts, Waterlevel

PACE = SatellitePace()


def facts(waiting: int = 0, cells: int = 2) -> Facts:
    return Facts(
        now=0.0, cells=cells, training=0, core_training=False, live=1, groups_per_batch=1, groups_ready=0, batch_full=False, batch_open=False,
        gate_closed=False, micro_batches_waiting=waiting, ready_work_s=0.0, cells_busy_training=0, update_in_progress=False, switch_s=0.0,
        pull_s=0.0, last_lend=0.0,
    )  # fmt: skip


def decision(cells_needed: int = 0) -> Decision:
    return Decision(want=0, reason="", waterlevel=Waterlevel(live=1, marginal=0.0, ready=0.0, cells_needed=cells_needed, theta=1.0))


class Bench:
    def __init__(self, most: int = 3) -> None:
        self.satellites, self.now = Satellites(most, PACE), 0.0

    def work(self, for_s: float, *, waiting: int = 0, calls: int = 0, needed: int = 0, groups_left: int = 5) -> None:
        end = self.now + for_s
        while self.now < end:
            self.satellites.observe(self.now, facts(waiting), decision(needed), calls, groups_left)
            self.now += 1.0

    def asked(self) -> int | None:
        effects = self.satellites.ask(self.now)
        return next((e.action.wanted for e in effects if isinstance(e, Start) and isinstance(e.action, KeepSatellites)), None)

    def told(self, waiting: int, running: int, refused: str = "") -> list[Effect]:
        return self.satellites.told(self.now, Finished(KEEP, SatelliteJobs(waiting, running, refused)))


def kinds(effects: list[Effect]) -> list[str]:
    return [effect.kind for effect in effects if isinstance(effect, Note)]


def test_they_are_asked_for_once_work_has_waited_for_long() -> None:
    for work in ({"waiting": 1}, {"calls": 1}, {"needed": 2}):
        bench = Bench()
        bench.work(PACE.patience_s - 5, **work)
        assert bench.asked() is None
        bench.work(10, **work)
        assert bench.asked() == 3 and bench.asked() is None, "one question at a time"
        assert kinds(bench.told(3, 0)) == ["satellites"] and bench.asked() is None
        bench.now += PACE.ask_every_s
        assert bench.asked() == 3, "those that went are asked for again"
        assert kinds(bench.told(3, 0)) == [], "nothing changed"


def test_short_breaks_take_back_no_more_than_their_length_and_work_that_seldom_waits_asks_for_none() -> None:
    bench = Bench()
    for _ in range(2):
        bench.work(30, waiting=1)
        assert bench.asked() is None
        bench.work(10)
    bench.work(25, waiting=1)
    assert bench.asked() == 3
    seldom = Bench()
    for _ in range(100):
        seldom.work(10, waiting=1)
        seldom.work(12)
    assert seldom.asked() is None


def test_waiting_ones_are_called_back_once_nothing_waits_for_long() -> None:
    bench = Bench()
    bench.work(PACE.patience_s + 2, waiting=1)
    assert bench.asked() == 3
    bench.told(2, 1)
    bench.work(PACE.calm_s - 5)
    assert bench.asked() == 3
    bench.told(2, 1)
    bench.work(PACE.ask_every_s + 10)
    assert bench.asked() == 0
    bench.told(0, 1)
    bench.work(10 * PACE.ask_every_s)
    assert bench.asked() is None, "the running one ends by itself"


def test_near_the_end_of_the_run_none_is_wanted() -> None:
    bench = Bench()
    bench.work(PACE.patience_s + 2, waiting=1, groups_left=1)
    assert bench.asked() == 3
    bench.told(3, 0)
    bench.work(PACE.ask_every_s + 1, waiting=1, groups_left=0)
    assert bench.asked() == 0


def test_a_run_that_asks_for_none_never_speaks_to_slurm() -> None:
    bench = Bench(most=0)
    bench.work(3 * PACE.patience_s, waiting=1)
    assert bench.asked() is None


def test_refusals_back_off_and_are_told_each_time() -> None:
    bench = Bench()
    bench.work(PACE.patience_s + 2, waiting=1)
    pauses = []
    for number in range(8):
        assert bench.asked() == 3
        ending = (
            Failed(KEEP, "SlurmRefusal", "no answer") if number % 2 else Finished(KEEP, SatelliteJobs(0, 0, "QOSMaxSubmitJobPerUserLimit"))
        )
        effects = bench.satellites.told(bench.now, ending)
        assert kinds(effects) == ["satellites_refused", "alarm"] and bench.satellites.refused
        pauses.append(round(bench.satellites.next_at - bench.now))
        bench.now = bench.satellites.next_at - 0.1
        assert bench.asked() is None
        bench.now += 0.2
    assert pauses == [60, 120, 240, 480, 960, 1800, 1800, 1800]
    assert bench.asked() == 3
    bench.told(3, 0)
    assert not bench.satellites.refused and bench.satellites.refusals == 0
