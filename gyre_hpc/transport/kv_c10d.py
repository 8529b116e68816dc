"""Blocks over torch's own pieces: a TCPStore for each offer, and a pair of ProcessGroups for its fetch.

An offer is a thread of the source that waits until a reader claims it with a proof of the ticket; both then form a group of two, and
the blocks travel as one stream of pieces. Nothing is registered in torch.distributed. Backend `gloo` is tested; `nccl` takes the same
path through a staging buffer on the current device and is untested (it needs GPUs).

Invariants:
  - offered blocks are read by our own copies into a staging buffer alone, under the offer's lock: after `withdraw` nobody reads;
  - target blocks are written by our own copies alone, while `fetch` has not returned: a group that outlives its caller writes to
    its staging buffer, which nobody reads any more;
  - no group is formed before both ends have proved the ticket; an offer can be claimed once.
"""

import contextlib
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport import kv_proof
from gyre_hpc.transport.breakable import Breakable
from gyre_hpc.transport.c10d_pieces import Deadline, c10d, check_backend, group_over, join_store, open_store
from gyre_hpc.transport.c10d_staging import SLOTS, Staging
from gyre_hpc.transport.kv_base import BlockTransport, Bytes, Ticket
from gyre_hpc.transport.kv_blocks import check_fetch, pieces, sizes_of
from gyre_hpc.transport.kv_proof import READER, SOURCE

KIND = "c10d"
_PREFIX = "blocks"
_WITHDRAWN = "withdrawn"
_INNER_SHARE = 0.9
"""torch's own deadlines end a little before ours: its reason says more than "deadline passed"."""


class C10dBlocks(BlockTransport):
    """Kind `c10d`. `host`: address of this process's interface; `backend`: gloo or nccl."""

    def __init__(self, *, host: str, backend: str = "gloo") -> None:
        self._host, self._backend = host, check_backend(backend)
        self._lock = threading.Lock()
        self._offers: dict[str, _Source] = {}

    def register(self, memory: Bytes) -> None:
        """Nothing to do: staging buffers are what travels."""

    def offer(self, blocks: Sequence[Bytes], deadline_s: float) -> Ticket:
        sizes = sizes_of(blocks)
        try:
            store = open_store(self._host)
        except (OSError, RuntimeError) as error:
            raise TransferFailed(f"no store could be opened on {self._host}: {error}") from error
        ticket = Ticket(KIND, f"{self._host}:{store.port}", secrets.token_hex(16), sizes)
        source = _Source(ticket, tuple(blocks), store, _Pair(self._backend, self._host, SOURCE, Deadline(deadline_s)))
        with self._lock:
            self._offers[ticket.offer] = source
        source.thread.start()
        return ticket

    def fetch(self, ticket: Ticket, into: Sequence[Bytes], deadline_s: float) -> None:
        check_fetch(ticket, KIND, into)
        pair = _Pair(self._backend, self._host, READER, Deadline(_INNER_SHARE * deadline_s))
        try:
            Breakable(lambda call: _read(ticket, into, pair, call), f"fetch of {sum(ticket.sizes)} bytes").run(deadline_s)
        finally:
            pair.abort()

    def withdraw(self, ticket: Ticket) -> bool:
        with self._lock:
            source = self._offers.pop(ticket.offer, None)
        if source is not None:
            source.end()
        return True

    def close(self) -> None:
        with self._lock:
            sources, self._offers = list(self._offers.values()), {}
        for source in sources:
            source.end()
        for source in sources:
            source.thread.join()


class _Pair:
    """One end's group of two, which another thread may abort."""

    def __init__(self, backend: str, host: str, rank: int, deadline: Deadline) -> None:
        self.backend, self.deadline = backend, deadline
        self._host, self._rank = host, rank
        self._lock = threading.Lock()
        self._group: Any = None
        self._is_aborted = False

    @contextlib.contextmanager
    def group(self, store: Any) -> Any:
        """Raises what torch raises, TransferFailed when it was aborted before."""
        with group_over(store, self.backend, self._host, self._rank, 2, self.deadline.left()) as group:
            with self._lock:
                if self._is_aborted:
                    raise TransferFailed("broken off")
                self._group = group
            try:
                yield group
            finally:
                with self._lock:
                    self._group = None

    def abort(self) -> None:
        """Whoever waits in the group gets an error."""
        with self._lock:
            self._is_aborted = True
            if self._group is not None:
                self._group.abort()


class _Source:
    """One offer. `thread` ends soon after `end`, at the latest at the offer's deadline."""

    def __init__(self, ticket: Ticket, blocks: tuple[Bytes, ...], master: Any, pair: _Pair) -> None:
        self._ticket, self._blocks, self._pair = ticket, blocks, pair
        self._lock = threading.Lock()
        self._is_over = False
        self._store = c10d.PrefixStore(_PREFIX, master)
        self._store.set("source", kv_proof.shown_by(SOURCE, ticket))
        # A client of its own: one that waits keeps all others from using it.
        self._waiting = c10d.PrefixStore(_PREFIX, master.clone())
        self.thread = threading.Thread(target=self._run, name=f"offer of {sum(ticket.sizes)} bytes", daemon=True)

    def end(self) -> None:
        """Afterwards nobody reads the blocks."""
        with self._lock:
            self._is_over = True
        self._store.compare_set("claim", "", _WITHDRAWN)
        self._store.set("got", "")
        self._pair.abort()

    def _run(self) -> None:
        # The reader tells what went wrong; here nobody listens.
        with contextlib.suppress(TransferFailed, RuntimeError):
            self._serve()

    def _serve(self) -> None:
        left = self._pair.deadline.left
        self._waiting.wait(["claim"], left())
        shown = self._waiting.get("claim").decode(errors="replace").partition(":")[0]
        if not kv_proof.is_right(shown, READER, self._ticket):
            return
        if any(self._ticket.sizes):
            with self._pair.group(self._waiting) as group:
                self._send(group)
                # Connections stay until the reader has everything.
                self._waiting.wait(["got"], left())

    def _send(self, group: Any) -> None:
        left = self._pair.deadline.left
        staging, works = Staging(sum(self._ticket.sizes), self._pair.backend), deque[Any]()
        for slot, piece in enumerate(pieces(self._blocks)):
            if len(works) == SLOTS:
                works.popleft().wait(left())
            with self._lock:
                if self._is_over:
                    raise TransferFailed("withdrawn")
                count = staging.fill(slot, piece)
            works.append(group.send([staging.tensor(slot, count)], READER, slot))
        for work in works:
            work.wait(left())


def _read(ticket: Ticket, into: Sequence[Bytes], pair: _Pair, call: Breakable) -> None:
    """The reader's side. Raises whatever torch raises, TransferFailed when it is refused."""
    store = join_store(ticket.address, _PREFIX, pair.deadline.left())
    _claim(store, ticket)
    if any(ticket.sizes):
        with pair.group(store) as group:
            _receive(group, into, pair, call)
            store.set("got", "")


def _claim(store: Any, ticket: Ticket) -> None:
    if not store.check(["source"]) or not kv_proof.is_right(store.get("source").decode(errors="replace"), SOURCE, ticket):
        raise TransferFailed("the source does not know this offer: wrong nonce or sizes")
    mine = f"{kv_proof.shown_by(READER, ticket)}:{secrets.token_hex(8)}"
    got = store.compare_set("claim", "", mine).decode(errors="replace")
    if got != mine:
        raise TransferFailed("the offer was withdrawn" if got == _WITHDRAWN else "the offer was fetched already")


def _receive(group: Any, into: Sequence[Bytes], pair: _Pair, call: Breakable) -> None:
    staging, cut = Staging(sum(block.size for block in into), pair.backend), list(pieces(into))
    counts = [sum(part.size for part in piece) for piece in cut]

    def post(slot: int) -> Any:
        return group.recv([staging.tensor(slot, counts[slot])], SOURCE, slot)

    works = deque(post(slot) for slot in range(min(SLOTS, len(cut))))
    for slot, piece in enumerate(cut):
        works.popleft().wait(pair.deadline.left())
        staging.fetch(slot, counts[slot])
        with call.wanted():
            staging.drain(slot, piece)
        if slot + SLOTS < len(cut):
            works.append(post(slot + SLOTS))
