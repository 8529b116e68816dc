"""Holds the supervisor of a node: it dies with this process, by signal and by the pipe that only we hold open."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.shell.lifetime import child_environment

_SUPERVISOR = "gyre_hpc.processes.supervisor"
_SOON_S = 0.1


@contextlib.contextmanager
def hold_supervisor(folder: RunFolder, name: str, argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The supervisor process, in a session of its own: Ctrl-C reaches it through us alone. argv: beside --run."""
    log = folder.log(name)
    log.parent.mkdir(exist_ok=True)
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", _SUPERVISOR, "--run", str(folder.root), *argv],
            stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True, env=child_environment(),
            preexec_fn=_deaf,  # noqa: PLW1509  (no threads here)
        )  # fmt: skip
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def _deaf() -> None:
    """In the child: SLURM sends a job's own signal to every process of it, in whatever session; ours alone answers, the rest would die."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


class Stop:
    """Signals become an orderly stop of the run; we stay until it is over."""

    def __init__(self) -> None:
        self.came = ""
        """Name of the first signal; empty: none."""
        self.at_signal: Callable[[str], None] | None = None
        """Called with the name of each kind of signal, once, after it was passed on; in its handler. Also once the supervisor is gone."""
        self._is_answered: dict[str, bool] = {}
        self._is_due_again = False
        self._process: subprocess.Popen[bytes] | None = None

    def tell(self, number: int, frame: object) -> None:
        """Handler of the signals."""
        name = signal.Signals(number).name
        self.came = self.came or name
        self._is_answered.setdefault(name, False)
        if self._process is not None:
            self._pass_on()

    def pass_on_to(self, process: subprocess.Popen[bytes]) -> None:
        """A signal that came before there was a process is passed on now."""
        self._process = process
        if self.came:
            self._pass_on()

    def again_in(self, seconds: float) -> None:
        """Pass the stop on once more after so long: who is told again waits for no save. The newest such order counts."""
        self._is_due_again = True
        signal.signal(signal.SIGALRM, lambda number, frame: self._terminate())
        signal.setitimer(signal.ITIMER_REAL, max(seconds, _SOON_S))

    def never_again(self) -> None:
        """The supervisor is gone."""
        if self._is_due_again:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _pass_on(self) -> None:
        self._terminate()
        for name in list(self._is_answered):
            if not self._is_answered[name]:  # another one may come meanwhile, and be answered first
                self._is_answered[name] = True
                if self.at_signal is not None:
                    self.at_signal(name)

    def _terminate(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


@contextlib.contextmanager
def stop_signals(*more: signal.Signals) -> Iterator[Stop]:
    """Ctrl-C, SIGTERM, the terminal's end and `more`, from before the supervisor's start to after its end."""
    stop = Stop()
    heard = [signal.SIGINT, signal.SIGTERM, *more]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        heard.append(signal.SIGHUP)
    before = {sig: signal.signal(sig, stop.tell) for sig in heard}
    try:
        yield stop
    finally:
        stop.never_again()
        for sig, handler in before.items():
            signal.signal(sig, handler)
