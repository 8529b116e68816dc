"""The part of a cell's server on a node where the leader is not: held by that node's first rank, beside the commands it obeys."""

import asyncio
import threading

from gyre_hpc.engines.sglang.parts import Holder


class ServerPart:
    """Lifecycle: start -> close. The holder lives in a loop of its own thread: a rank's thread waits for commands.

    Whoever only ends (kill -9, a lost leader) leaves it to its keeper, which waits for the next incarnation, or for the run's end.
    """

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server part", daemon=True)

    def start(self) -> None:
        """Returns once it is well, which takes all of the cell's nodes. Raises ServerLost."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._holder.start(), self._loop).result()

    def failure(self) -> str | None:
        return self._holder.failure()

    def pids(self) -> tuple[int, ...]:
        return self._holder.pids()

    def close(self) -> None:
        """End it, with everything it started."""
        try:
            asyncio.run_coroutine_threadsafe(self._holder.stop(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
