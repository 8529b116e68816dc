"""A follower rank: takes commands until it is told to end, or its leader is gone (then CellLost ends the process)."""

import contextlib
import logging
import threading
from collections.abc import Iterator

from gyre_hpc.cell import commands
from gyre_hpc.cell.rank import Rank
from gyre_hpc.cell.world import IDLE_DEADLINE_S, Channel
from gyre_hpc.errors import CellLost

log = logging.getLogger(__name__)
_LEADER = 0
BEAT_S = 3.0
"""A rank at work says so this often."""


def follow(rank: Rank, channel: Channel) -> None:
    """The whole life of a follower. Errors of a command go to the leader; the rank stays."""
    while True:
        command = commands.decode_command(channel.receive(_LEADER, IDLE_DEADLINE_S))
        channel.send(_LEADER, commands.TAKEN, IDLE_DEADLINE_S)
        with _beating(channel):
            answer = _do(rank, command)
        channel.send(_LEADER, commands.encode(answer), IDLE_DEADLINE_S)
        if isinstance(command, commands.End):
            return


def _do(rank: Rank, command: commands.Command) -> commands.Answer:
    try:
        return rank.answer(rank.do(command))
    except Exception as failure:  # process edge: the leader decides what an error means
        log.exception("command %s failed", type(command).__name__)
        return rank.answer(None, f"{type(failure).__name__}: {failure}")


@contextlib.contextmanager
def _beating(channel: Channel) -> Iterator[None]:
    """Nothing but beats goes to the leader meanwhile: the channel has one sender at a time."""
    is_done = threading.Event()

    def beat() -> None:
        with contextlib.suppress(CellLost):  # the next receive says it
            while not is_done.wait(BEAT_S):
                channel.send(_LEADER, commands.WORKING, IDLE_DEADLINE_S)

    thread = threading.Thread(target=beat, name="beats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
