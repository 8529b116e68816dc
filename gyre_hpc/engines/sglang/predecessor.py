"""Ends what an earlier server of a folder has left running, whoever started it. In a keeper, before it starts its own."""

import select
import socket
from pathlib import Path

from gyre_hpc.clock import monotonic_s
from gyre_hpc.engines.sglang.keeper_wire import End, encode
from gyre_hpc.engines.sglang.process_table import marked
from gyre_hpc.engines.sglang.server_folder import socket_file
from gyre_hpc.observability.process_tree import is_alive, kill

_KILL_S = 10.0
"""A process that is in the kernel's hands (a driver that hangs) does not end by SIGKILL."""


def end_predecessor(folder: Path, end_s: float) -> tuple[int, ...]:
    """Ask its keeper to end it, wait `end_s` and a little; then kill. Returns the pids of what is there even so."""
    _ask(socket_file(folder), end_s + _KILL_S)
    processes = marked(str(folder))
    give_up_at = monotonic_s() + _KILL_S
    while processes and monotonic_s() < give_up_at:
        for process in processes:
            kill(process)
        select.poll().poll(20)
        # What they had started meanwhile is among them now.
        processes = marked(str(folder))
    return tuple(process.pid for process in processes if is_alive(process))


def _ask(path: Path, answer_s: float) -> None:
    """Returns when the keeper is gone, or does not answer."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(answer_s)
            connection.connect(str(path))
            connection.sendall(encode(End()))
            while connection.recv(65536):
                continue
    except OSError:
        return
