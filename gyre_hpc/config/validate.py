"""Cross-field checks, made once, when a configuration is composed; inside it is trusted.

Each check yields (field, value, remedy); the first one becomes a UserError. Types and unknown keys are refused earlier, by the schema.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from gyre_hpc.config import validate_engine, validate_slurm
from gyre_hpc.config.place import LONGEST_SCRATCH
from gyre_hpc.config.schema import Config, EngineKind, SchedulerMode, TrainerKind
from gyre_hpc.config.validate_engine import Breach
from gyre_hpc.errors import UserError

POSITIVE = (
    "cluster.cells", "cluster.ranks_per_cell", "cluster.cells_per_process", "cluster.gateways", "cluster.runner_capacity", "cluster.runner_cpus",
    "cluster.runner_memory_mb", "cluster.start_deadline_s", "cluster.switch_deadline_s",
    "cluster.slurm.nodes", "cluster.slurm.time_min", "cluster.slurm.signal_s", "cluster.slurm.node_silence_s", "launch.chain_limit",
    "launch.satellite_nodes", "launch.satellite_time_min", "scheduler.concurrency_half",
    "engine.page_size", "engine.kv_tokens", "engine.max_batch", "engine.prefill_chunk", "engine.timed_tokens_per_s",
    "engine.timed_prefill_tokens_per_s", "engine.timed_move_tokens_per_s", "engine.timed_half", "engine.time_scale",
    "trainer.eps", "trainer.max_grad_norm", "trainer.micro_batch_tokens", "trainer.timed_tokens_per_s",
    "model.hidden_size", "model.num_layers", "model.num_heads", "model.num_kv_heads", "model.head_dim", "model.intermediate_size",
    "model.max_context", "model.rope_theta", "model.rms_norm_eps", "model.init_std",
    "algo.updates", "algo.groups_per_batch", "algo.clip_high", "algo.j_max", "algo.temperature",
    "sandbox.memory_mb", "sandbox.max_processes", "sandbox.disk_mb", "sandbox.cpu_s",
    "suite.soft_deadline_s", "suite.cpus", "suite.memory_mb", "transport.deadline_s", "transport.chunk_bytes",
    "warm_start.lr", "warm_start.batch_tokens",
    "gateway.progress_tokens", "gateway.progress_s", "gateway.table_lease_s", "gateway.abandon_s", "gateway.keepalive_s", "gateway.hold_s",
    "replay.max_lives", "gateway.max_calls", "gateway.max_body_bytes", "gateway.body_deadline_s", "gateway.unread_s", "gateway.call_deadline_s",
    "journal.segment_bytes", "checkpoint.every", "checkpoint.keep",
)  # fmt: skip
NOT_NEGATIVE = (
    "seed", "cluster.slurm.gpus_per_node", "cluster.slurm.cpus_per_node", "cluster.slurm.memory_gb", "launch.satellites",
    "scheduler.lead_factor", "scheduler.lead_floor_s", "scheduler.dwell_s", "scheduler.max_staleness",
    "trainer.lr", "trainer.weight_decay", "trainer.timed_apply_s", "trainer.timed_switch_s", "trainer.memory_limit_mb",
    "algo.truncated_is", "algo.top_k", "transport.kv_budget_s",
    "warm_start.executions", "warm_start.epochs", "evaluation.tasks",
    "harness.max_calls", "harness.context_tokens", "harness.max_output_tokens", "gateway.max_tokens_per_execution", "gateway.malformed_window",
    "suite.fruitless_window", "checkpoint.stop_s",
)  # fmt: skip
SHARES = {
    "scheduler.theta0": (False, True),
    "trainer.beta1": (True, False),
    "trainer.beta2": (True, False),
    "algo.clip_low": (False, False),
    "algo.top_p": (False, True),
    "warm_start.sloppiness": (True, True),
}
"""Fields between 0 and 1, and whether 0 and 1 themselves are allowed."""
AT_MOST = {
    "cluster.cells": 4096, "cluster.ranks_per_cell": 1024, "cluster.cells_per_process": 256, "cluster.gateways": 256, "cluster.runner_capacity": 1 << 20,
    "algo.groups_per_batch": 1 << 20, "algo.group_size": 1 << 16, "evaluation.tasks": 1 << 20, "warm_start.executions": 1 << 24,
}  # fmt: skip
"""Far above any real run: counts of processes and executions that a slip of the finger must not start."""
_LONGEST_S = 1e8
"""Three years; far beyond it timers of libraries overflow."""
SHORTEST_SILENCE_S = 20.0
"""Of a node: so that a few reports may go astray before it fences itself."""


def validate(config: Config) -> None:
    """Raise UserError for the first thing that cannot work."""
    for check in (
        _numbers,
        _ranges,
        _cluster,
        _kinds,
        validate_engine.tensor_parallel,
        validate_engine.deterministic,
        validate_engine.sglang,
        validate_slurm.slurm,
        _scheduler,
        _model,
        _algo,
        _tasks,
        _steps,
        _places,
    ):
        for field, value, remedy in check(config):
            raise UserError(field, value, remedy)


def value_of(config: Config, key: str) -> Any:
    """The value at a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _numbers(config: Any, prefix: str = "") -> Iterator[Breach]:
    """What every number must be, whatever it counts."""
    for item in fields(config):
        key, value = prefix + item.name, getattr(config, item.name)
        if is_dataclass(value):
            yield from _numbers(value, key + ".")
        elif isinstance(value, float) and not math.isfinite(value):
            yield key, value, "must be a finite number"
        elif isinstance(value, float) and key.endswith("_s") and value > _LONGEST_S:
            yield key, value, f"seconds, at most {_LONGEST_S:.0f}"
        elif isinstance(value, int) and abs(value) >= 1 << 63:
            yield key, value, "must fit into 64 bits"


def _ranges(config: Config) -> Iterator[Breach]:
    for key, most in AT_MOST.items():
        if value_of(config, key) > most:
            yield key, value_of(config, key), f"must be at most {most}"
    for key in POSITIVE:
        if not value_of(config, key) > 0:
            yield key, value_of(config, key), "must be greater than 0"
    for key in NOT_NEGATIVE:
        if not value_of(config, key) >= 0:
            yield key, value_of(config, key), "must not be negative"
    for key, (zero, one) in SHARES.items():
        value = value_of(config, key)
        if not (0 < value < 1 or (zero and value == 0) or (one and value == 1)):
            yield key, value, f"must lie in {'[' if zero else '('}0, 1{']' if one else ')'}"


def _cluster(config: Config) -> Iterator[Breach]:
    cluster, suite = config.cluster, config.suite
    if suite.cpus > cluster.runner_cpus:
        yield "suite.cpus", suite.cpus, f"an execution could never start: at most cluster.runner_cpus={cluster.runner_cpus}"
    if suite.memory_mb > cluster.runner_memory_mb:
        yield (
            "suite.memory_mb",
            suite.memory_mb,
            f"an execution could never start: at most cluster.runner_memory_mb={cluster.runner_memory_mb}",
        )
    if cluster.slurm.node_silence_s < SHORTEST_SILENCE_S:
        shortest = f"nodes say something every 2 s and fence themselves 10 s before: at least {SHORTEST_SILENCE_S:g}"
        yield "cluster.slurm.node_silence_s", cluster.slurm.node_silence_s, shortest
    ports = config.network.port_range
    if ports:
        match = re.fullmatch(r"(\d+)-(\d+)", ports)
        if match is None or not 1024 <= int(match[1]) <= int(match[2]) <= 65535:
            yield "network.port_range", ports, "write LOW-HIGH within 1024-65535, or leave it empty for any free port"
            return
        least = 3 + cluster.gateways + cluster.cells  # supervisor, controller, runner
        if int(match[2]) - int(match[1]) + 1 < least:
            yield "network.port_range", ports, f"every process listens: at least {least} ports"
    if cluster.cells_per_process > 1:
        yield from _shared_process(config)
    if not config.network.interface:
        yield "network.interface", "", "name the address to bind to, e.g. 127.0.0.1"


def _shared_process(config: Config) -> Iterator[Breach]:
    timed = (config.engine.kind, config.trainer.kind) == (EngineKind.timed, TrainerKind.timed)
    if not timed or config.cluster.ranks_per_cell > 1:
        yield (
            "cluster.cells_per_process",
            config.cluster.cells_per_process,
            "cells that compute have processes of their own: leave it at 1, or take engine=timed trainer=timed cluster.ranks_per_cell=1",
        )


def _kinds(config: Config) -> Iterator[Breach]:
    timed = (config.engine.kind is EngineKind.timed, config.trainer.kind is TrainerKind.timed)
    if timed[0] != timed[1]:
        yield "trainer.kind", config.trainer.kind.name, "waits and real weights do not mix: set engine=timed trainer=timed, or neither"
    if config.transport.groups != "c10d":
        yield "transport.groups", config.transport.groups, "kinds that exist: c10d"
    if config.transport.kv not in ("tcp", "c10d", "mooncake", "memory", "none"):
        yield "transport.kv", config.transport.kv, "tcp, c10d, mooncake, memory (cells of one process) or none"
    if config.transport.kv == "memory" and config.engine.kind is EngineKind.embedded:
        yield "transport.kv", "memory", "each of these cells is a process of its own: tcp, c10d, mooncake or none"
    if config.transport.kv_protocol not in ("tcp", "rdma"):
        yield "transport.kv_protocol", config.transport.kv_protocol, "tcp, or rdma where there is a device"
    if config.transport.backend not in ("gloo", "nccl"):
        yield "transport.backend", config.transport.backend, "gloo, or nccl on GPUs"


def _scheduler(config: Config) -> Iterator[Breach]:
    scheduler, cells = config.scheduler, config.cluster.cells
    if scheduler.mode is SchedulerMode.async_split and not 1 <= scheduler.split < cells:
        yield (
            "scheduler.split",
            scheduler.split,
            f"async needs at least one cell on each side: between 1 and cluster.cells - 1 = {cells - 1}",
        )


def _model(config: Config) -> Iterator[Breach]:
    model, engine = config.model, config.engine
    if model.num_heads % model.num_kv_heads:
        yield "model.num_kv_heads", model.num_kv_heads, f"must divide model.num_heads={model.num_heads}"
    if model.head_dim % 2:
        yield "model.head_dim", model.head_dim, "must be even (rotary positions turn pairs)"
    if engine.kv_tokens % engine.page_size:
        yield "engine.kv_tokens", engine.kv_tokens, f"must be a multiple of engine.page_size={engine.page_size}"
    if engine.kv_tokens < model.max_context:
        yield "engine.kv_tokens", engine.kv_tokens, f"one call must fit: at least model.max_context={model.max_context}"


def _algo(config: Config) -> Iterator[Breach]:
    if config.algo.group_size < 2:
        yield "algo.group_size", config.algo.group_size, "a group baseline needs at least 2 executions"


def _tasks(config: Config) -> Iterator[Breach]:
    harness, suite, model = config.harness, config.suite, config.model
    for key in ("harness.name", "suite.name", "model.tokenizer", "model.template"):
        if not value_of(config, key):
            yield key, "", "must be named"
    if suite.hard_deadline_s < suite.soft_deadline_s:
        yield "suite.hard_deadline_s", suite.hard_deadline_s, f"must not come before suite.soft_deadline_s={suite.soft_deadline_s}"
    if harness.context_tokens >= model.max_context:
        yield "harness.context_tokens", harness.context_tokens, f"must be below model.max_context={model.max_context}"
    if harness.max_output_tokens >= model.max_context:
        yield "harness.max_output_tokens", harness.max_output_tokens, f"must be below model.max_context={model.max_context}"


def _steps(config: Config) -> Iterator[Breach]:
    warm, evaluation, checkpoint = config.warm_start, config.evaluation, config.checkpoint
    if (warm.executions > 0) != (warm.epochs > 0):
        yield "warm_start.epochs", warm.epochs, "warm_start.executions and warm_start.epochs go together: both above 0, or both 0"
    if warm.executions and warm.batch_tokens < config.model.max_context:
        yield "warm_start.batch_tokens", warm.batch_tokens, f"one sequence must fit: at least {config.model.max_context}"
    if evaluation.tasks == 0 and (evaluation.before or evaluation.after):
        yield "evaluation.tasks", 0, "set evaluation.before=false evaluation.after=false for a run without evaluation"
    if checkpoint.before_publish and checkpoint.every != 1:
        yield (
            "checkpoint.every",
            checkpoint.every,
            "before_publish saves every update: leave it at 1 or set checkpoint.before_publish=false",
        )


def _places(config: Config) -> Iterator[Breach]:
    if len(config.paths.scratch.encode()) > LONGEST_SCRATCH:
        yield (
            "paths.scratch",
            config.paths.scratch,
            f"choose a folder of at most {LONGEST_SCRATCH} bytes: sockets below it may not exceed 103",
        )
