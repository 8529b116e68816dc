"""A follower rank: takes commands until it is told to end, or its leader is gone (then CellLost ends the process)."""

import logging

from gyre_hpc.cell import commands
from gyre_hpc.cell.rank import Rank
from gyre_hpc.cell.world import IDLE_DEADLINE_S, Channel

log = logging.getLogger(__name__)
_LEADER = 0


def follow(rank: Rank, channel: Channel) -> None:
    """The whole life of a follower. Errors of a command go to the leader; the rank stays."""
    while True:
        command = commands.decode_command(channel.receive(_LEADER, IDLE_DEADLINE_S))
        channel.send(_LEADER, commands.TAKEN, IDLE_DEADLINE_S)
        result, error = None, ""
        try:
            result = rank.do(command)
        except Exception as failure:  # process edge: the leader decides what an error means
            log.exception("command %s failed", type(command).__name__)
            error = f"{type(failure).__name__}: {failure}"
        channel.send(_LEADER, commands.encode(rank.answer(result, error)), IDLE_DEADLINE_S)
        if isinstance(command, commands.End):
            return
