"""The leader's side of a server: adopts or starts it, waits until it answers, ends it.

What lives on without the leader is the keeper's (keeper.py). Nothing here blocks the loop.
"""

from gyre_hpc.engines.sglang.parts import Address, Launch


class Server:
    """Holder of the server of one node."""

    was_adopted: bool
    noted: str
    """State that the predecessor noted, once adopted; else empty."""

    def __init__(
        self,
        launch: Launch,
        *,
        start_deadline_s: float,
        orphan_s: float,
        root_pid: int | None = None,
        is_first: bool = True,
        end_s: float = 10.0,
    ) -> None:
        """root_pid: the process whose end ends the server whatever the leader does; default: the leader's parent.
        orphan_s: so long the server outlives its leader, in wait for the next one.
        is_first: the server of the cell's first node has SGLang's API; those of others only say that they are well.
        end_s: between SIGTERM and SIGKILL."""
        raise NotImplementedError

    async def start(self) -> Address:
        """`adopt`, else `begin`."""
        raise NotImplementedError

    async def adopt(self) -> Address | None:
        """The server of an equal launch whose noted state is asleep or awake. None: there is none, and nothing else is left there.
        A cell of several nodes adopts on all or on none: where another could not, `stop` this one and `begin`."""
        raise NotImplementedError

    async def begin(self) -> Address:
        """Start a new one; returns once it answers. Raises ServerLost with the end of its log."""
        raise NotImplementedError

    def note(self, state: str) -> None:
        raise NotImplementedError

    def failure(self) -> str | None:
        raise NotImplementedError

    def pids(self) -> tuple[int, ...]:
        raise NotImplementedError

    async def leave(self) -> None:
        """Let go of a server that goes on in wait for the next leader."""
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError
