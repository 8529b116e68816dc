"""A controller that stood still judges nobody for it: what was said meanwhile lies unread behind the tick that it wakes to."""

from gyre_hpc.machines.base import Effect, Note, Send, SetTimer, TimerFired
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.commit import Commit
from gyre_hpc.machines.batch.fleet import Move
from gyre_hpc.machines.batch.machine import TICK
from gyre_hpc.protocol.supervision import RestartCell
from tests.fakes.batch_bench import CELLS, report, serving, tell


def live_until(made: BatchMachine, now: float, until: float, mute: str = "") -> tuple[float, list[Effect]]:
    """Ticks when they are due, and a report of every cell but `mute` before each; the time of the last tick, and all effects."""
    effects, seq = list[Effect](), {name: cell.report.seq for name, cell in made.state.fleet.cells.items() if cell.report}
    while now < until:
        for name in CELLS:
            if name != mute:
                seq[name] += 1
                tell(made, now, report(name, seq[name], term=made.state.fleet.cells[name].term))
        told = made.handle(now, TimerFired(TICK))
        effects += told
        now += [effect.after_s for effect in told if isinstance(effect, SetTimer) and effect.key == TICK][-1]
    return now, effects


def lost(effects: list[Effect]) -> list[str]:
    return [effect.message.cell for effect in effects if isinstance(effect, Send) and isinstance(effect.message, RestartCell)]


def stood_still_s(effects: list[Effect]) -> list[float]:
    return [effect.fields["seconds"] for effect in effects if isinstance(effect, Note) and effect.kind == "stood_still"]


def test_a_controller_that_stood_still_for_longer_than_a_cells_silence_loses_none_and_says_so():
    made = serving()
    due, _ = live_until(made, 0.2, 3.0)
    effects = made.handle(due + 60.0, TimerFired(TICK))
    assert not lost(effects) and stood_still_s(effects) == [60.0]
    _, after = live_until(made, due + 60.1, due + 90.0)
    assert not lost(after) and not stood_still_s(after), "what they said meanwhile is read"


def test_who_is_silent_after_a_standstill_too_is_lost_when_its_own_silence_is_long_enough():
    made = serving()
    silence_s = made.state.settings.silence_s
    due, before = live_until(made, 0.2, 6.0, mute="cell-1")
    woken = made.handle(due + 60.0, TimerFired(TICK))
    assert not lost(before) and not lost(woken)
    now, after = live_until(made, due + 60.1, due + 60.0 + silence_s / 3, mute="cell-1")
    assert not lost(after)
    _, after = live_until(made, now, due + 60.0 + silence_s, mute="cell-1")
    assert set(lost(after)) == {"cell-1"}


def test_a_silent_cell_is_lost_by_a_controller_whose_ticks_are_only_a_little_late():
    made, now = serving(), 0.2
    while now < 30.0 and not (found := lost(made.handle(now, TimerFired(TICK)))):
        now += 0.9
    assert sorted(found) == sorted(CELLS) and now < 12.0


def test_role_changes_work_commits_and_the_runs_progress_have_so_much_more_time():
    made = serving(switch_deadline_s=20.0)
    state, cell = made.state, made.state.fleet.cells["cell-1"]
    due, _ = live_until(made, 0.2, 3.0)
    cell.move, cell.moving_since = Move.ordered, due - 5.0
    state.commit = Commit(generation=1, members=CELLS, nonce="n", started_at=due - 5.0)
    progress_at = state.progress_at
    effects = made.handle(due + 600.0, TimerFired(TICK))
    assert not lost(effects) and not state.finished
    assert cell.moving_since == due + 595.0 and state.progress_at == progress_at + 600.0
    assert state.commit is not None and state.commit.started_at == due + 595.0
