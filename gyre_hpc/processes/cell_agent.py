"""The agent of a cell on one node: torchrun with a rendezvous of ours (gyre_hpc/cell/rendezvous.py), on the supervisor's leash.

`python -m gyre_hpc.processes.cell_agent --part NUMBER TORCHRUN-ARGUMENTS -m -- MODULE ARGUMENTS-OF-A-RANK`. Started by the supervisor, which
never loads torch itself. A cell over several nodes has an agent on each; the one of part 0 tells supervisor-0 where its store listens. The
ranks are children of this process: they die with it, and it dies when the supervisor's pipe closes.
"""

import os
import signal
import sys
import traceback

from gyre_hpc.cell.rendezvous import RENDEZVOUS, Part, register_rendezvous
from gyre_hpc.protocol.envelope import Envelope
from gyre_hpc.protocol.supervision import RendezvousOpen
from gyre_hpc.shell import stacks
from gyre_hpc.shell.arguments import Birth, read_birth
from gyre_hpc.shell.lifetime import ORDERLY_END_S, PARENT_PID, PARENT_SIGNAL, SUPERVISOR_PID, die_with_born_parent, leave, on_closed_pipe
from gyre_hpc.shell.refusal import REFUSED, refusing
from gyre_hpc.shell.tell import tell

_TELL_DEADLINE_S = 20.0


def end_in_order() -> None:
    """SIGTERM makes torchrun end its ranks and itself; the kernel ends it if that hangs, and the ranks with it."""
    signal.alarm(ORDERLY_END_S)
    os.kill(os.getpid(), signal.SIGTERM)


def part_of(birth: Birth, number: int) -> Part:
    """The rendezvous as this agent takes part in it."""

    def opened(address: str) -> None:
        message = RendezvousOpen(birth.name, birth.incarnation, address)
        tell(birth.supervisor_url, birth.run_token, Envelope(birth.name, birth.attempt, message), _TELL_DEADLINE_S)

    config = birth.config
    return Part(number=number, interface=config.network.interface, deadline_s=config.cluster.start_deadline_s, opened=opened)


def main(argv: list[str] | None = None) -> None:
    """Run torchrun in this process; exits with its code, or 128 + signal once told to end."""
    given = list(sys.argv[1:] if argv is None else argv)
    assert given[0] == "--part" and "--" in given, "cell_agent is started by the supervisor"
    number, torchrun = int(given[1]), given[2:]
    die_with_born_parent()
    on_closed_pipe(end_in_order)
    births: list[Birth] = []
    if refusing(lambda: births.append(read_birth(given[given.index("--") + 2 :]))):
        sys.exit(REFUSED)
    stacks.of_birth(births[0], agent=number)
    # A rank whose agent is gone has nothing to end in order, and may hang in a collective.
    os.environ |= {SUPERVISOR_PID: str(os.getppid()), PARENT_PID: str(os.getpid()), PARENT_SIGNAL: "SIGKILL"}
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    register_rendezvous(part_of(births[0], number))
    try:
        run.main(["--rdzv-backend", RENDEZVOUS, *torchrun])
    except SignalException as told:  # torchrun ended its ranks and raises what it was told
        sys.exit(128 + told.sigval)
    except ChildFailedError as failed:  # its text is torchrun's report of which rank failed, and how
        if any(one.exitcode == REFUSED for one in failed.failures.values()):
            sys.exit(REFUSED)  # the rank has said why
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except SystemExit as ending:
        # The supervisor starts a lost cell again only when its agent is gone.
        leave(ending.code if isinstance(ending.code, int) else ending.code is not None)
    leave(0)
