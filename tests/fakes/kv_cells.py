"""Cells' shares of moving KV, in one process: serving engines with everything between their pages and HTTP, as cell/run.py builds it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.cell import commands
from gyre_hpc.cell.crew import Crew
from gyre_hpc.cell.kv_actions import KvActions
from gyre_hpc.cell.kv_client import KvClient
from gyre_hpc.cell.kv_intake import KvIntake
from gyre_hpc.cell.kv_rank import KvRank
from gyre_hpc.cell.rank import Rank
from gyre_hpc.config.schema import Config, TrainerConfig, TrainerKind, TransportConfig
from gyre_hpc.engines.base import PagedKV
from gyre_hpc.machines.cell import actions
from gyre_hpc.ports import listen
from gyre_hpc.protocol.to_batch import Moved
from gyre_hpc.scheduler.migration import Conversation, Move
from gyre_hpc.shell.inbox import make_app
from gyre_hpc.shell.serving import Serving
from gyre_hpc.train import create_trainer
from gyre_hpc.transport.kv import create_block_transport
from gyre_hpc.transport.kv_base import Arrived, BlockTransport, Bytes, Ticket, nobody
from gyre_hpc.transport.snapshot_store import HostSnapshotStore
from tests.fakes.engine_rig import TOKEN, Rig, rig

HOST = "127.0.0.1"


class Watched(BlockTransport):
    """A real transport whose fetches are counted, and may be tampered with."""

    def __init__(self, real: BlockTransport, cell: "KvCell") -> None:
        self._real, self._cell = real, cell

    def register(self, memory: Bytes) -> None:
        self._real.register(memory)

    def offer(self, blocks: Sequence[Bytes], deadline_s: float) -> Ticket:
        self._cell.before_offer()
        return self._real.offer(blocks, deadline_s)

    def fetch(self, ticket: Ticket, into: Sequence[Bytes], deadline_s: float, arrived: Arrived = nobody) -> None:
        def tampered(count: int) -> None:
            self._cell.after_arrival(into[:count])
            arrived(count)

        self._cell.before_fetch()
        self._real.fetch(ticket, into, deadline_s, tampered)
        self._cell.num_fetched += len(into)

    def withdraw(self, ticket: Ticket) -> bool:
        return self._real.withdraw(ticket)

    def close(self) -> None:
        self._real.close()


@dataclass(kw_only=True, eq=False)
class KvCell:
    name: str
    serving: Rig
    crew: Crew
    actions: KvActions
    intake: KvIntake
    client: KvClient
    num_fetched: int = 0
    """Blocks whose bytes came here."""
    before_offer: Callable[[], None] = lambda: None
    before_fetch: Callable[[], None] = lambda: None
    after_arrival: Callable[[Sequence[Bytes]], None] = field(default=lambda into: None)

    @property
    def kv(self) -> PagedKV:
        assert self.serving.engine.kv is not None
        return self.serving.engine.kv

    async def generate(self, ids: list[int], num_tokens: int, call: str, **more: Any) -> Any:
        custom = {"key": "aa", "position": more.pop("position", 0), "call": call}
        return await self.serving.generate(ids, num_tokens, custom_params=custom, **more)

    async def conversations(self) -> dict[str, Conversation]:
        listed = await self.actions.list_conversations("", actions.ListConversations(deadline_s=5.0), _ignore)
        return {one.call: one for one in listed}

    async def give(self, *calls: str, to: str, deadline_s: float = 20.0) -> actions.MoveResult:
        """MoveKv of these calls."""
        moves = tuple(Move(call=call, cell=to, num_tokens=0) for call in calls)
        return await self.actions.move("", actions.MoveKv(moves=moves, deadline_s=deadline_s), _ignore)

    async def quiet(self, deadline_s: float = 20.0) -> int:
        return await self.actions.quiet("", actions.QuietKv(deadline_s=deadline_s), _ignore)

    def all_to(self, target: str, *calls: str) -> tuple[Moved, ...]:
        return tuple(Moved(call, target) for call in calls)


def _ignore(item: Any) -> None:
    pass


@asynccontextmanager
async def kv_cells(
    kind: str, transport: str, *, configs: Sequence[dict[str, Any]] = ({}, {}), addresses: dict[str, str] | None = None
) -> AsyncIterator[list[KvCell]]:
    """cell-0, cell-1, ..., one per entry of `configs` (engine settings). addresses: of others, by name; theirs are added."""
    known = {} if addresses is None else addresses
    async with AsyncExitStack() as stack:
        cells = []
        for number, config in enumerate(configs):
            serving = await stack.enter_async_context(rig(kind, moves_kv=True, **config))
            cells.append(await _cell(f"cell-{number}", serving, transport, known, stack))
        yield cells


async def _cell(name: str, serving: Rig, transport: str, known: dict[str, str], stack: AsyncExitStack) -> KvCell:
    store = HostSnapshotStore()
    trainer = create_trainer(Config(trainer=TrainerConfig(kind=TrainerKind.timed)), vocab_size=64, store=store, rank=0, world=1)
    crew = Crew(Rank(0, trainer, store), 1, None)
    stack.callback(crew.close)
    kv = serving.engine.kv
    assert kv is not None
    client = KvClient(known.get, TOKEN)
    intake = KvIntake(kv, crew)
    cell = KvCell(
        name=name, serving=serving, crew=crew, client=client, intake=intake, actions=KvActions(name, serving.engine, crew, client, intake)
    )

    def new_transport() -> BlockTransport | None:
        real = create_block_transport(TransportConfig(kv=transport), HOST)
        return None if real is None else Watched(real, cell)

    crew.own.kv = KvRank(0, kv.page_bytes, new_transport)
    app = make_app(TOKEN)
    intake.add_to(app)
    server = Serving(app)
    known[name] = await server.start(listen(HOST))
    stack.push_async_callback(server.close)
    stack.push_async_callback(client.close)
    stack.push_async_callback(crew.ask_each, commands.KvEnd(), 10.0)
    return cell
