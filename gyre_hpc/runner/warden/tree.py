"""The end of everything below this process."""

import os
import signal

from gyre_hpc.observability.process_tree import descendants, signal_quietly


def end_tree() -> None:
    """Kill everything below this process and reap it. Needs to be a subreaper: orphans come back to us.

    Stopping first keeps a fork bomb from growing while it is being killed.
    """
    me = os.getpid()
    while True:
        for sig in (signal.SIGSTOP, signal.SIGKILL):
            for pid in descendants(me):
                signal_quietly(pid, sig)
        try:
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
