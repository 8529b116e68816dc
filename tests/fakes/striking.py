"""Faults at exact steps of real processes, from inside them: the recorder of debug.record_inputs knows each step the moment it is taken.

GYRE_TEST_STRIKES is `process.incarnation:strike[,...]`; `cell` is any incarnation of any cell, `satellite` of any but
the core, cell-0. Each strike hits once, whoever comes first, and is noted in the file GYRE_TEST_STRUCK. Everything is done at the outer edge (a signal,
a slow disk), and what is struck is the real process in a real run. No process that is not named is touched.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STRIKES, STRUCK = "GYRE_TEST_STRIKES", "GYRE_TEST_STRUCK"
SLOW_SYNC_S = 0.15
"""Of the slow disk: hundreds of times a usual one."""
When = Callable[[Any, list[Any]], bool]


def environment(folder: Path, *strikes: str) -> dict[str, str]:
    """For the launcher of a run."""
    repository = Path(__file__).parents[2]
    paths = [str(Path(__file__).parent / "strikes"), str(repository), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {STRIKES: ",".join(strikes), STRUCK: str(folder / "struck"), "PYTHONPATH": os.pathsep.join(paths)}


def struck(folder: Path) -> list[str]:
    """Strikes that were carried out."""
    return sorted(path.name.removeprefix("struck-") for path in folder.glob("struck-*"))


def prepare() -> None:
    """Called in every process of the run."""
    argv = sys.orig_argv
    if "--name" not in argv or "--incarnation" not in argv or any("cell_agent" in word for word in argv):
        return
    process = argv[argv.index("--name") + 1]
    me = {f"{process}.{argv[argv.index('--incarnation') + 1]}"}
    if process.startswith("cell-"):
        me |= {"cell"} if process == "cell-0" else {"cell", "satellite"}
    wanted = [one for one in filter(None, os.environ.get(STRIKES, "").split(",")) if one.split(":")[0] in me]
    if not wanted or os.environ.get("RANK", "0") != "0":
        return
    for one in wanted:
        name = one.split(":")[1]
        if name == "slow_disk":
            _claim(one)
            _slow_disk()
        else:
            _watch(one, *_TABLE[name])


def _slow_disk() -> None:
    real = os.fdatasync

    def slow(descriptor: int) -> None:
        time.sleep(SLOW_SYNC_S)
        real(descriptor)

    os.fdatasync = slow


def _watch(one: str, new_condition: Callable[[], When], strike: Callable[[], None]) -> None:
    from gyre_hpc.shell.recorder import Recorder

    condition, record = new_condition(), Recorder.write
    done: list[bool] = []

    def write(self: Recorder, now: float, told: Any, effects: list[Any]) -> None:
        record(self, now, told, effects)
        if not done and condition(told, effects):
            done.append(True)
            if _claim(one):
                strike()

    Recorder.write = write  # type: ignore[method-assign]


def _claim(one: str) -> bool:
    """Whether nobody else was hit by this one before."""
    try:
        os.close(os.open(os.environ[STRUCK] + f"-{one}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _all_others_struck(name: str) -> bool:
    others = [one for one in os.environ[STRIKES].split(",") if not one.endswith(f":{name}")]
    return all(os.path.exists(os.environ[STRUCK] + f"-{one}") for one in others)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stand_still() -> None:
    """For ever, and with it whoever waits for it."""
    os.kill(os.getpid(), signal.SIGSTOP)


def _die_at_work() -> None:
    """The effects of this input are carried out first: the step is under way."""
    threading.Timer(0.003, _die).start()


def _silence_others() -> None:
    """The other ranks of this cell stand still and say nothing, for ever."""
    agent = os.getppid()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        if int(entry) != os.getpid() and _parent(int(entry)) == agent:
            os.kill(int(entry), signal.SIGSTOP)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _started(effects: list[Any], kind: str) -> list[Any]:
    """Actions of this kind that begin now."""
    return [effect.action for effect in effects if type(effect).__name__ == "Start" and type(effect.action).__name__ == kind]


def _in_accumulate() -> When:
    """Last of all: cells that are gone are lent no more, and their other steps would not come."""
    return lambda told, effects: bool(_started(effects, "Accumulate")) and _all_others_struck("in_accumulate")


def _in_move_kv() -> When:
    """With conversations to give."""
    return lambda told, effects: any(action.moves for action in _started(effects, "MoveKv"))


def _after_abort() -> When:
    """Calls were aborted, and the engine has not gone to sleep yet."""
    from gyre_hpc.engines.served import ServedEngine

    live: list[int] = []
    abort_all = ServedEngine.abort_all

    async def counted(self: ServedEngine, *args: Any, **more: Any) -> int:
        live.append(self.num_live())
        return await abort_all(self, *args, **more)

    ServedEngine.abort_all = counted  # type: ignore[method-assign]
    return lambda told, effects: type(told).__name__ == "Finished" and told.key.startswith("abort_live#") and live[-1] > 0


def _in_reduce() -> When:
    """The collective of a commit begins."""
    return lambda told, effects: bool(_started(effects, "Reduce"))


def _silent_follower() -> When:
    return lambda told, effects: bool(_started(effects, "CloseAdmission"))


def _mid_stream() -> When:
    """A call of which some tokens are durable and some are not: those that come now."""
    durable: set[str] = set()
    writing: dict[str, str] = {}

    def holds(told: Any, effects: list[Any]) -> bool:
        kind = type(told).__name__
        if kind == "Persisted" and told.key in writing:
            durable.add(writing.pop(told.key))
        for effect in effects:
            if type(effect).__name__ == "Persist" and type(effect.record).__name__ == "CallProgress":
                writing[effect.key] = effect.record.call
        return kind == "Progressed" and told.key.startswith("attempt/") and any(f"/{call}/" in told.key for call in durable)

    return holds


def _in_switch() -> When:
    """A cell says that it has begun to leave rollout."""
    return lambda told, effects: _report_of(told) is not None and _report_of(told).state.name in ("draining", "switching")


def _applied_not_published() -> When:
    """The core says that the update is made; the intent is durable, its publication is not."""
    return lambda told, effects: any(
        type(effect).__name__ == "Persist" and type(effect.record).__name__ == "Published" and effect.record.update >= 0
        for effect in effects
    )


def _report_of(told: Any) -> Any:
    return getattr(told, "message", None) if type(getattr(told, "message", None)).__name__ == "CellReport" else None


_TABLE: dict[str, tuple[Callable[[], When], Callable[[], None]]] = {
    "in_accumulate": (_in_accumulate, _die_at_work),
    "in_move_kv": (_in_move_kv, _die_at_work),
    "after_abort": (_after_abort, _die),
    "silent_follower": (_silent_follower, _silence_others),
    "stands_still_in_reduce": (_in_reduce, _stand_still),
    "mid_stream": (_mid_stream, _die),
    "in_switch": (_in_switch, _die),
    "applied_not_published": (_applied_not_published, _die),
}
