"""The parts of a rank, made as the configuration says."""

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gyre_hpc.cell.half import Pairing
from gyre_hpc.cell.kv_rank import KvRank
from gyre_hpc.cell.place import Place, meet, server_site
from gyre_hpc.cell.rank import Rank
from gyre_hpc.cell.server_part import ServerPart
from gyre_hpc.cell.world import World
from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.deadlines import switch_step_s
from gyre_hpc.config.schema import Config, EngineKind, TrainerKind, TransportConfig
from gyre_hpc.engines import create_engine, create_server_part
from gyre_hpc.engines.base import Engine
from gyre_hpc.engines.sglang.parts import Nodes
from gyre_hpc.machines.cell import CellSettings
from gyre_hpc.machines.cell.actions import AppliedRecord
from gyre_hpc.observability.cpu import own_cpu_s
from gyre_hpc.observability.startup import Startup
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.shell.host import NoteSink
from gyre_hpc.shell.log import MachineLog, read_log
from gyre_hpc.shell.timers import after
from gyre_hpc.train import create_trainer
from gyre_hpc.transport.kv import create_block_transport
from gyre_hpc.transport.kv_base import BlockTransport
from gyre_hpc.transport.snapshot_store import HostSnapshotStore


def note_startup(note: NoteSink, birth: Birth, place: Place, startup: Startup) -> None:
    fields = {"process": birth.name, "incarnation": birth.incarnation, "rank": place.rank, "host": socket.gethostname()}
    note("startup", {**fields, "steps": startup.steps})


def server_part(birth: Birth, place: Place, nodes: Nodes) -> ServerPart:
    config = birth.config
    site = server_site(birth, place, nodes)
    return ServerPart(create_server_part(config.engine, site, model_config=config.model, vocab_size=vocab_size(config)))


def make_store(config: Config) -> HostSnapshotStore:
    return HostSnapshotStore(chunk_bytes=config.transport.chunk_bytes, deadline_s=config.transport.deadline_s)


def make_rank(config: Config, place: Place, store: HostSnapshotStore, cpu_s: Callable[[], float] = own_cpu_s) -> Rank:
    trainer = create_trainer(config, vocab_size=vocab_size(config), store=store, rank=place.rank, world=place.world)
    return Rank(place.rank, trainer, store, cpu_s)


def vocab_size(config: Config) -> int:
    return create_chat_format(config.model).tokenizer.vocab_size


def transport_of(config: Config) -> TransportConfig:
    """transport.groups says how the sums of real trainers travel. Timed ones have numpy slots and load no torch: tcp."""
    return replace(config.transport, groups="tcp") if config.trainer.kind is TrainerKind.timed else config.transport


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
