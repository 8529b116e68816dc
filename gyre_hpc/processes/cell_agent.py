"""The agent of one cell: torchrun with its rendezvous bound to the job's interface, on the supervisor's leash.

`python -m gyre_hpc.processes.cell_agent --interface ADDRESS --port-range LOW-HIGH TORCHRUN-ARGUMENTS`. Started by the supervisor, which never
loads torch itself. The stock c10d rendezvous listens on every interface of the machine and knows no token; ours hands
the store a socket that is already bound. The ranks are children of this process: they die with it, and it dies when the
supervisor's pipe closes.
"""

import os
import signal
import socket
import sys
import traceback
from datetime import timedelta

from gyre_hpc.ports import listen, restrict
from gyre_hpc.shell.lifetime import ORDERLY_END_S, PARENT_PID, PARENT_SIGNAL, SUPERVISOR_PID, die_with_born_parent, leave, on_closed_pipe
from gyre_hpc.shell.refusal import REFUSED

RENDEZVOUS = "gyre_c10d"
_STORE_DEADLINE = timedelta(seconds=60)


def bound_socket(interface: str) -> socket.socket:
    """A listening socket on a free port of `interface`."""
    listener = listen(interface)
    listener.set_inheritable(False)
    return listener


def register_rendezvous(interface: str) -> None:
    """Make the rendezvous backend RENDEZVOUS known to torchrun: c10d over a store bound to `interface`."""
    from torch._C._distributed_c10d import TCPStore  # its public name is not declared as exported
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters, rendezvous_handler_registry
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    class BoundBackend(C10dRendezvousBackend):
        @property
        def name(self) -> str:
            return RENDEZVOUS

    def create(params: RendezvousParameters) -> RendezvousHandler:
        listener = bound_socket(interface)
        port = listener.getsockname()[1]
        store = TCPStore(
            interface, port, is_master=True, timeout=_STORE_DEADLINE, wait_for_workers=False,
            multi_tenant=True, master_listen_fd=listener.detach(),
        )  # fmt: skip
        return create_handler(store, BoundBackend(store, params.run_id), params)

    rendezvous_handler_registry.register(RENDEZVOUS, create)


def end_in_order() -> None:
    """SIGTERM makes torchrun end its ranks and itself; the kernel ends it if that hangs, and the ranks with it."""
    signal.alarm(ORDERLY_END_S)
    os.kill(os.getpid(), signal.SIGTERM)


def main(argv: list[str] | None = None) -> None:
    """Run torchrun in this process; exits with its code, or 128 + signal once told to end."""
    given = list(sys.argv[1:] if argv is None else argv)
    assert (given[0], given[2]) == ("--interface", "--port-range"), "cell_agent is started by the supervisor"
    restrict(given[3])
    die_with_born_parent()
    on_closed_pipe(end_in_order)
    # A rank whose agent is gone has nothing to end in order, and may hang in a collective.
    os.environ |= {SUPERVISOR_PID: str(os.getppid()), PARENT_PID: str(os.getpid()), PARENT_SIGNAL: "SIGKILL"}
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    register_rendezvous(given[1])
    try:
        run.main(given[4:])
    except SignalException as told:  # torchrun ended its ranks and raises what it was told
        sys.exit(128 + told.sigval)
    except ChildFailedError as failed:  # its text is torchrun's report of which rank failed, and how
        traceback.print_exc()
        sys.exit(REFUSED if any(one.exitcode == REFUSED for one in failed.failures.values()) else 1)


if __name__ == "__main__":
    try:
        main()
    except SystemExit as ending:
        # The supervisor starts a lost cell again only when its agent is gone.
        leave(ending.code if isinstance(ending.code, int) else ending.code is not None)
    leave(0)
