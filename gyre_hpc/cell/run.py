"""Builds a cell's ranks from the configuration. The leader hosts the machine; a follower obeys the leader."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from gyre_hpc.cell.crew import Crew
from gyre_hpc.cell.engine_actions import EngineActions
from gyre_hpc.cell.follow import follow
from gyre_hpc.cell.half import Pairing
from gyre_hpc.cell.kv_actions import KvActions
from gyre_hpc.cell.kv_client import KvClient
from gyre_hpc.cell.kv_intake import KvIntake
from gyre_hpc.cell.kv_rank import KvRank
from gyre_hpc.cell.look import Looker
from gyre_hpc.cell.micro_batches import MicroBatches
from gyre_hpc.cell.pace import Pace
from gyre_hpc.cell.parts import (
    block_transport,
    cell_settings,
    kv_rank,
    make_engine,
    make_rank,
    make_store,
    meet_others,
    note_startup,
    open_log,
    server_part,
    transport_of,
)
from gyre_hpc.cell.place import Place, meet
from gyre_hpc.cell.rank import Rank
from gyre_hpc.cell.trainer_actions import TrainerActions
from gyre_hpc.cell.transfer_actions import TransferActions
from gyre_hpc.cell.world import World, join_world
from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.schema import Config, EngineKind
from gyre_hpc.engines import create_follower
from gyre_hpc.engines.base import Engine
from gyre_hpc.machines.base import Restarted
from gyre_hpc.machines.cell import CellMachine
from gyre_hpc.machines.cell.actions import Measure
from gyre_hpc.observability.cpu import own_cpu_s
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.observability.startup import Startup
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.shell.events import open_events
from gyre_hpc.shell.host import Host
from gyre_hpc.shell.lifetime import die_with_born_parent, end_with_parent
from gyre_hpc.transport.groups import create_groups

log = logging.getLogger(__name__)
Ends = Callable[[Callable[[str], None]], None]
"""Is handed what ends a cell in order, given the reason."""


def run_rank(birth: Birth, place: Place) -> None:
    """The whole life of one rank."""
    config, startup = birth.config, Startup()
    startup.over("imports")
    world = None
    if place.world > 1:
        deadline_s = config.transport.deadline_s if shares_engine(config) else None
        world = join_world(config.network.interface, rank=place.rank, world=place.world, engine_deadline_s=deadline_s)
        startup.over("world")
    if place.is_leader:
        asyncio.run(lead(birth, place, world, startup=startup))
    else:
        assert world is not None
        die_with_born_parent()
        rank = make_follower(birth, place, world)
        startup.over("trainer")
        with contextlib.closing(
            EventWriter(birth.folder.events(f"{birth.name}.{place.rank}", birth.attempt), birth.name, birth.attempt)
        ) as events:
            note_startup(events.note, birth, place, startup)
        follow(rank, world.channel)


def shares_engine(config: Config) -> bool:
    """Whether the ranks of a cell hold one model together, in their engine too."""
    return config.cluster.tensor_parallel != 1 and config.engine.kind is EngineKind.embedded


def make_follower(birth: Birth, place: Place, world: World) -> Rank:
    """Another rank than the first, with its part of the engine at work."""
    config = birth.config
    store = make_store(config)
    # Served like every store; it also learns the run token that way.
    store.serve(config.network.interface, birth.run_token)
    rank = make_rank(config, place, store)
    if world.engine is not None:
        tokenizer = create_chat_format(config.model).tokenizer
        rank.engine = create_follower(
            config.engine,
            model_config=config.model,
            vocab_size=tokenizer.vocab_size,
            store=store,
            ranks=world.engine,
            decode=tokenizer.decode,
        )
        if config.transport.kv != "none":
            rank.kv = KvRank(place.rank, rank.engine.page_bytes, lambda: block_transport(config))
        rank.engine.start()
    if config.engine.kind is EngineKind.sglang:
        nodes = meet(place, world.channel, config.network.interface, config.cluster.start_deadline_s)
        if nodes.number and place.holds_server:
            rank.server = server_part(birth, place, nodes)
            rank.server.start()
    return rank


async def lead(
    birth: Birth,
    place: Place,
    world: World | None,
    ends: Ends = end_with_parent,
    startup: Startup | None = None,
    cpu_s: Callable[[], float] = own_cpu_s,
) -> None:
    """Rank 0: engine, trainer, store and the machine, until the parent goes or a newer attempt lives.

    `ends` is handed what ends this cell; a cell whose task is cancelled is dropped as if its process were killed. Nothing here is the
    process's own, so that several timed cells can live in one (cell/hosted.py), each with its share `cpu_s` of CPU seconds.
    """
    async with contextlib.AsyncExitStack() as open_parts:
        await _lead(birth, place, world, ends, startup or Startup(), cpu_s, open_parts)


async def _lead(
    birth: Birth,
    place: Place,
    world: World | None,
    ends: Ends,
    startup: Startup,
    cpu_s: Callable[[], float],
    open_parts: contextlib.AsyncExitStack,
) -> None:
    """What is put on `open_parts` is closed from the top: first what speaks, last what it speaks of."""
    config, folder, interface = birth.config, birth.folder, birth.config.network.interface
    closing = open_parts.push_async_callback
    events = open_events(folder, birth.name, birth.attempt)
    open_parts.callback(events.close)
    store = make_store(config)
    # Its thread looks up now and then; others must not wait for that.
    closing(asyncio.to_thread, store.close)
    snapshot_url = store.serve(interface, birth.run_token)
    crew = Crew(make_rank(config, place, store, cpu_s), place.world, world.channel if world else None)
    open_parts.callback(crew.close)
    startup.over("trainer")
    nodes = meet_others(config, place, world)
    pairing = Pairing.of(birth, nodes, lambda cell: host.address(cell))
    closing(pairing.close)
    client = KvClient(lambda cell: host.address(cell), birth.run_token)
    closing(client.close)
    micro_batches = MicroBatches(birth.run_token)
    closing(micro_batches.close)
    engine = make_engine(birth, place, world, store, nodes, pairing)
    closing(engine.close)
    crew.own.kv = kv_rank(config, place, engine)
    with pairing.starting():
        engine_url = await engine.start()
    startup.over("engine")
    trainer = TrainerActions(crew, micro_batches, folder, snapshot_url, Pace(crew.own.trainer), config.checkpoint.keep)
    transfer = TransferActions(crew, store, snapshot_url, lambda: create_groups(transport_of(config), interface))
    intake = None if engine.kv is None else KvIntake(engine.kv, crew)
    kv = KvActions(birth.name, engine, crew, client, intake)
    records, machine_log = open_log(birth)
    host = Host(
        name=birth.name,
        attempt=birth.attempt,
        run_token=birth.run_token,
        addresses=birth.addresses,
        actions={
            **EngineActions(engine, crew, kv).table(),
            **kv.table(),
            **trainer.table(),
            **transfer.table(),
            Measure: Looker(crew, engine, store).measure,
        },
        note=events.note,
        machine_log=machine_log,
        record_to=folder.inputs(birth.name, birth.attempt) if config.debug.record_inputs else None,
        own_cpu_s=cpu_s,
    )
    closing(host.close)
    open_parts.callback(transfer.close)
    open_parts.push(_cutting(host, engine))
    if intake is not None:
        intake.add_to(host.app)
    pairing.add_to(host.app, engine)
    ends(host.end)
    url = await host.bind(interface)
    note_startup(events.note, birth, place, startup)
    settings = cell_settings(birth, place, engine_url=engine_url, snapshot_url=snapshot_url)
    host.run(CellMachine(settings, birth.register(url)), Restarted(tuple(records)))
    log.info("%s ends: %s", birth.name, await host.ended)
    events.note("engine_tokens", {"counts": engine.counters()})


def _cutting(host: Host, engine: Engine) -> Callable[[type[BaseException] | None, BaseException | None, object], None]:
    """Callback of an exit: who is dropped takes no leave."""

    def cut(kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is asyncio.CancelledError:
            host.cut()
            engine.cut()

    return cut
