"""Builds a cell's ranks from the configuration. The leader hosts the machine; a follower obeys the leader."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
from gyre_hpc.cell.place import Place, meet, server_site
from gyre_hpc.cell.rank import Rank
from gyre_hpc.cell.server_part import ServerPart
from gyre_hpc.cell.trainer_actions import TrainerActions
from gyre_hpc.cell.transfer_actions import TransferActions
from gyre_hpc.cell.world import World, join_world
from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.deadlines import switch_step_s
from gyre_hpc.config.schema import Config, EngineKind, TrainerKind, TransportConfig
from gyre_hpc.engines import create_engine, create_follower, create_server_part
from gyre_hpc.engines.base import Engine
from gyre_hpc.engines.sglang.parts import Nodes
from gyre_hpc.machines.base import Restarted
from gyre_hpc.machines.cell import CellMachine, CellSettings
from gyre_hpc.machines.cell.actions import AppliedRecord, Measure
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.observability.startup import Startup
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.shell.events import open_events
from gyre_hpc.shell.host import Host, NoteSink
from gyre_hpc.shell.lifetime import die_with_born_parent, end_with_parent
from gyre_hpc.shell.log import MachineLog, read_log
from gyre_hpc.shell.timers import after
from gyre_hpc.train import create_trainer
from gyre_hpc.transport.groups import create_groups
from gyre_hpc.transport.kv import create_block_transport
from gyre_hpc.transport.kv_base import BlockTransport
from gyre_hpc.transport.snapshot_store import HostSnapshotStore

log = logging.getLogger(__name__)


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


def note_startup(note: NoteSink, birth: Birth, place: Place, startup: Startup) -> None:
    fields = {"process": birth.name, "incarnation": birth.incarnation, "rank": place.rank, "host": socket.gethostname()}
    note("startup", {**fields, "steps": startup.steps})


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


def server_part(birth: Birth, place: Place, nodes: Nodes) -> ServerPart:
    config = birth.config
    site = server_site(birth, place, nodes)
    return ServerPart(create_server_part(config.engine, site, model_config=config.model, vocab_size=vocab_size(config)))


def make_store(config: Config) -> HostSnapshotStore:
    return HostSnapshotStore(chunk_bytes=config.transport.chunk_bytes, deadline_s=config.transport.deadline_s)


def make_rank(config: Config, place: Place, store: HostSnapshotStore) -> Rank:
    trainer = create_trainer(config, vocab_size=vocab_size(config), store=store, rank=place.rank, world=place.world)
    return Rank(place.rank, trainer, store)


def vocab_size(config: Config) -> int:
    return create_chat_format(config.model).tokenizer.vocab_size


def transport_of(config: Config) -> TransportConfig:
    """transport.groups says how the sums of real trainers travel. Timed ones have numpy slots and load no torch: tcp."""
    return replace(config.transport, groups="tcp") if config.trainer.kind is TrainerKind.timed else config.transport


async def lead(
    birth: Birth,
    place: Place,
    world: World | None,
    ends: Callable[[Callable[[str], None]], None] = end_with_parent,
    startup: Startup | None = None,
) -> None:
    """Rank 0: engine, trainer, store and the machine, until the parent goes or a newer attempt lives.

    `ends` is handed what ends this cell. Nothing here is the process's own, so that several timed cells can live in one.
    """
    config, folder, interface = birth.config, birth.folder, birth.config.network.interface
    startup = startup or Startup()
    store = make_store(config)
    snapshot_url = store.serve(interface, birth.run_token)
    crew = Crew(make_rank(config, place, store), place.world, world.channel if world else None)
    startup.over("trainer")
    nodes = meet_others(config, place, world)
    pairing = Pairing.of(birth, nodes, lambda cell: host.address(cell))
    engine = make_engine(birth, place, world, store, nodes, pairing)
    crew.own.kv = kv_rank(config, place, engine)
    with pairing.starting():
        engine_url = await engine.start()
    startup.over("engine")
    micro_batches = MicroBatches(birth.run_token)
    trainer = TrainerActions(crew, micro_batches, folder, snapshot_url, Pace(crew.own.trainer), config.checkpoint.keep)
    transfer = TransferActions(crew, store, snapshot_url, lambda: create_groups(transport_of(config), interface))
    client = KvClient(lambda cell: host.address(cell), birth.run_token)
    intake = None if engine.kv is None else KvIntake(engine.kv, crew)
    kv = KvActions(birth.name, engine, crew, client, intake)
    events = open_events(folder, birth.name, birth.attempt)
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
    )
    if intake is not None:
        intake.add_to(host.app)
    pairing.add_to(host.app, engine)
    ends(host.end)
    url = await host.bind(interface)
    note_startup(events.note, birth, place, startup)
    settings = cell_settings(birth, place, engine_url=engine_url, snapshot_url=snapshot_url)
    host.run(CellMachine(settings, birth.register(url)), Restarted(tuple(records)))
    reason = await host.ended
    log.info("%s ends: %s", birth.name, reason)
    events.note("engine_tokens", {"counts": engine.counters()})
    transfer.close()
    await host.close()
    await engine.close()
    await micro_batches.close()
    await client.close()
    await pairing.close()
    crew.close()
    store.close()
    events.close()


def meet_others(config: Config, place: Place, world: World | None) -> Nodes:
    """The nodes of the cell's server, where its engine has one."""
    if config.engine.kind is not EngineKind.sglang:
        return Nodes()
    return meet(place, world.channel if world else None, config.network.interface, config.cluster.start_deadline_s)


def make_engine(birth: Birth, place: Place, world: World | None, store: HostSnapshotStore, nodes: Nodes, pairing: Pairing) -> Engine:
    """The engine of the cell, not started."""
    config = birth.config
    tokenizer = create_chat_format(config.model).tokenizer
    site = None
    if config.engine.kind is EngineKind.sglang:
        site = server_site(birth, place, nodes, pairing.half.part, pairing.half.bootstrap_port)
    return create_engine(
        config.engine,
        model_config=config.model,
        vocab_size=tokenizer.vocab_size,
        store=store,
        run_token=birth.run_token,
        host=config.network.interface,
        timer=after,
        decode=tokenizer.decode,
        moves_kv=config.transport.kv != "none",
        ranks=world.engine if world else None,
        site=site,
        prefill=pairing.half.prefill,
    )


def kv_rank(config: Config, place: Place, engine: Engine) -> KvRank | None:
    """What moves the pages of this rank's engine; None: they do not move."""
    kv = engine.kv
    if kv is None:
        return None
    if config.engine.kind is EngineKind.embedded and (transport := block_transport(config)) is not None:
        # One that cannot be had is told now, not when it is needed. Timed engines have no bytes, and load no torch for them.
        transport.close()
    return KvRank(place.rank, kv.page_bytes, lambda: block_transport(config))


def block_transport(config: Config) -> BlockTransport | None:
    return create_block_transport(config.transport, config.network.interface)


def cell_settings(birth: Birth, place: Place, *, engine_url: str, snapshot_url: str) -> CellSettings:
    """Deadlines that the configuration knows; the rest are the machine's own."""
    config = birth.config
    return CellSettings(
        name=birth.name,
        incarnation=birth.incarnation,
        ranks=place.world,
        engine_url=engine_url,
        snapshot_url=snapshot_url,
        checkpoint_before_publish=config.checkpoint.before_publish,
        checkpoint_every=config.checkpoint.every,
        memory_limit=config.trainer.memory_limit_mb << 20,
        switch_deadline_s=switch_step_s(config),
        pull_deadline_s=config.transport.deadline_s,
        reduce_deadline_s=config.transport.deadline_s,
        hand_in_deadline_s=config.transport.deadline_s,
    )


def open_log(birth: Birth) -> tuple[list[Any], MachineLog]:
    """Records of former incarnations in this attempt, and the log open for appending."""
    path = birth.folder.machine_log(birth.name, birth.attempt)
    records, whole = read_log(path, AppliedRecord)
    return records, MachineLog(path, whole)
