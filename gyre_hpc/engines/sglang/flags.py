"""How a server is started: configuration in, flags and environment out. Pure.

Order of power: what our protocol with the server depends on (a user's flag of that name is refused) > `engine.sglang.flags` > what
the rest of the configuration says. A name that SGLang does not know is refused by SGLang itself, at the start of the server.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.config.engine_schema import Device, EngineConfig, SGLangKV
from gyre_hpc.engines.sglang.parts import Launch
from gyre_hpc.engines.sglang.site import LOOPBACK, Part, Site
from gyre_hpc.engines.sglang.watch import ANSWER_S
from gyre_hpc.errors import UserError

CONTEXT_MARGIN = 8
"""SGLang ends answers so many tokens before its context does; with it, its limits are exactly model.max_context."""
_RESERVED = 512
"""A server that decodes for another one takes a prompt only with room for so many tokens after it; one for which there never is room it
would let wait for ever."""


def create_launch(
    config: EngineConfig,
    site: Site,
    *,
    max_context: int,
    model_folder: Path,
    device: Device,
    python: Path,
    program: tuple[str, ...],
    inherited: Mapping[str, str],
) -> Launch:
    """The server of one site.

    device: cpu or cuda, `auto` being decided. inherited: environment of the process that asks.
    Raises UserError naming the key of engine.sglang that cannot be.
    """
    assert device is not Device.auto
    # SGLang has one flag for its API, which has a key, and its bootstrap server, which the other half must reach.
    host = site.interface if site.part is Part.prefill else LOOPBACK
    flags = _chosen(config, max_context, model_folder, site, device) | {"host": host}
    flags |= _of_kv(config, device, site)
    return Launch(
        python=python,
        program=program,
        flags=_as_arguments(_with_users(flags, config.sglang.flags)),
        environ=_environment(config, device, site, inherited),
        folder=site.folder,
        host=host,
        bootstrap_port=site.bootstrap_port if site.part is Part.prefill else 0,
    )


def room_for(num_tokens: int, page: int, part: Part = Part.whole) -> int:
    """KV tokens a server must have for one call of `num_tokens`: it wants a page more than the one the call ends in, and as with its
    context it ends answers before the last token."""
    beside = max(2 * page, CONTEXT_MARGIN) + (_RESERVED if part is Part.decode else 0)
    return num_tokens + -(-beside // page) * page


def dtype_of(config: EngineConfig, device: Device) -> str:
    """What `auto` means for the server's weights."""
    if config.sglang.dtype != "auto":
        return config.sglang.dtype
    return "bfloat16" if device is Device.cuda else "float32"


_Flags = dict[str, Any]
"""Name -> value; True: a flag without a value."""

_NEW_EACH_START = "it is chosen anew for every start"
_OF_THE_CELL = "it follows from the cell's ranks and nodes"
_NO_HTTP = "the cell speaks plain HTTP with it, on loopback"
_OTHER_TOKENS = "tokens would be drawn from something else than the prompt and the sampling that were asked for"
_PROTECTED = {
    "model-path": "set model.path",
    "load-format": "weights come from the trainer",
    "skip-tokenizer-init": "the server gets token ids",
    "host": "it serves on loopback, behind the cell's own surface",
    "port": _NEW_EACH_START,
    "api-key": _NEW_EACH_START,
    "admin-api-key": _NEW_EACH_START,
    "config": "put its flags into engine.sglang.flags",
    "device": "set engine.sglang.device",
    "dtype": "set engine.sglang.dtype",
    "tp-size": _OF_THE_CELL,
    "pp-size": _OF_THE_CELL,
    "dp-size": _OF_THE_CELL,
    "nnodes": _OF_THE_CELL,
    "node-rank": _OF_THE_CELL,
    "dist-init-addr": _OF_THE_CELL,
    "incremental-streaming-output": "the cell counts on news alone",
    "stream-interval": "set engine.sglang.stream_tokens",
    "context-length": "set model.max_context",
    "weight-version": "the cell labels the weights",
    "enable-memory-saver": "the cell sleeps while it trains",
    "disaggregation-mode": "set engine.sglang.kv",
    "disaggregation-bootstrap-port": "set engine.sglang.kv",
    "max-total-tokens": "set engine.kv_tokens",
    "page-size": "set engine.page_size",
    "grpc-mode": _NO_HTTP,
    "smg-grpc-mode": _NO_HTTP,
    "ssl-keyfile": _NO_HTTP,
    "ssl-certfile": _NO_HTTP,
    "is-embedding": "the server answers with tokens",
    "tokenizer-worker-num": "one process takes the cell's requests, and all of their aborts",
    "allow-auto-truncate": _OTHER_TOKENS,
    "preferred-sampling-params": _OTHER_TOKENS,
    "enable-watermark": _OTHER_TOKENS,
}
"""Flags our protocol with the server depends on -> what to do instead."""
_ALIASES = {
    "model": "model-path",
    "tensor-parallel-size": "tp-size",
    "pipeline-parallel-size": "pp-size",
    "data-parallel-size": "dp-size",
    "nccl-init-addr": "dist-init-addr",
}
"""SGLang's other names of protected flags."""


def _chosen(config: EngineConfig, max_context: int, model: Path, site: Site, device: Device) -> _Flags:
    nodes = site.nodes
    flags: _Flags = {
        "model-path": str(model),
        "load-format": "dummy",
        "skip-tokenizer-init": True,
        "device": device.value,
        "dtype": dtype_of(config, device),
        "tp-size": site.world,
        "context-length": max_context + CONTEXT_MARGIN,
        "incremental-streaming-output": True,
        "stream-interval": config.sglang.stream_tokens,
        "weight-version": "0.0",
        "page-size": config.page_size,
        "max-total-tokens": room_for(config.kv_tokens, config.page_size, site.part),
        "max-running-requests": config.max_batch,
        "chunked-prefill-size": config.prefill_chunk,
        "log-level": "warning" if nodes.number == 0 else "error",
    }
    if nodes.count > 1:
        flags |= {"nnodes": nodes.count, "node-rank": nodes.number, "dist-init-addr": nodes.address}
    if device is Device.cpu:
        if config.deterministic:
            raise UserError("engine.deterministic", True, "SGLang is deterministic on cuda only; set engine.deterministic=false")
        return flags | _ON_CPU
    flags["enable-memory-saver"] = True
    if config.deterministic:
        flags["enable-deterministic-inference"] = True
    return flags


_ON_CPU: _Flags = {
    "attention-backend": "torch_native",
    "sampling-backend": "pytorch",
    # Only the bound of what max-total-tokens asks for.
    "mem-fraction-static": 0.5,
    "cuda-graph-backend-decode": "disabled",
    "cuda-graph-backend-prefill": "disabled",
}


def _of_kv(config: EngineConfig, device: Device, site: Site) -> _Flags:
    """What becomes of KV beyond this server."""
    if config.keep_kv and config.sglang.kv is not SGLangKV.none:
        remedy = f"set it to false with engine.sglang.kv={config.sglang.kv.value}: how old KV is does not travel with it"
        raise UserError("engine.keep_kv", True, remedy)
    match config.sglang.kv:
        case SGLangKV.none:
            return {}
        case SGLangKV.shared:
            if device is Device.cpu:
                raise UserError("engine.sglang.kv", "shared", "HiCache needs a GPU; set engine.sglang.kv=none")
            flags: _Flags = {
                "enable-hierarchical-cache": True,
                "hicache-storage-backend": config.sglang.storage,
                # Part of a page's name in the storage; by default it would be the cell's own folder.
                "served-model-name": "gyre",
            }
            if config.sglang.storage_config:
                flags["hicache-storage-backend-extra-config"] = dict(config.sglang.storage_config)
            return flags
        case SGLangKV.pd:
            assert site.part is not Part.whole, "with kv=pd every cell is one half of a pair"
            flags = {"disaggregation-mode": site.part.value, "disaggregation-transfer-backend": "mooncake"}
            if site.part is Part.prefill:
                return flags | {"disaggregation-bootstrap-port": site.bootstrap_port}
            return flags | {
                # A backup of retracted calls would want a HiCache pool; they go on from their tokens instead.
                "disaggregation-decode-retraction-backup": "none",
                "disaggregation-decode-enable-radix-cache": True,
                "num-reserved-decode-tokens": _RESERVED,
            }


def _with_users(flags: _Flags, users: Mapping[str, Any]) -> _Flags:
    """`flags`, overridden by the user's. Raises UserError on one that is protected."""
    merged = dict(flags)
    for given, value in users.items():
        name = str(given).lstrip("-").replace("_", "-")
        # argparse takes any beginning of a name for the name.
        protected = next((flag for flag in (*_PROTECTED, *_ALIASES) if flag.startswith(name)), None)
        if protected is not None:
            protected = _ALIASES.get(protected, protected)
            raise UserError(f"engine.sglang.flags.{given}", value, f"leave --{protected} out: {_PROTECTED[protected]}")
        merged[name] = value
    return merged


def _as_arguments(flags: _Flags) -> tuple[str, ...]:
    """False and None leave a flag out; a list gives it several values, a mapping one of JSON."""
    arguments: list[str] = []
    for name, value in flags.items():
        if value is False or value is None:
            continue
        arguments.append(f"--{name}")
        if isinstance(value, Mapping):
            arguments.append(json.dumps(dict(value)))
        elif isinstance(value, list | tuple):
            arguments += [str(one) for one in value]
        elif value is not True:
            arguments.append(str(value))
    return tuple(arguments)


_TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"}
_TORCHRUN_BEGINNINGS = ("MASTER_", "TORCHELASTIC_", "TORCH_NCCL_", "GROUP_", "ROLE_", "PET_")
_OTHER_PYTHON = {"PYTHONPATH", "PYTHONSAFEPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__"}
_OF_A_SHELL = {"_", "PWD", "OLDPWD", "SHLVL"}
"""They differ from start to start and mean nothing to a server: with them no successor's launch would be equal."""


def _environment(config: EngineConfig, device: Device, site: Site, inherited: Mapping[str, str]) -> dict[str, str]:
    dropped = _TORCHRUN | _OTHER_PYTHON | _OF_A_SHELL
    environ = {
        name: value for name, value in inherited.items() if name not in dropped and not name.startswith((*_TORCHRUN_BEGINNINGS, "GYRE_"))
    }
    environ |= {
        # One thread per process, as everywhere here: with more processes than cores its barriers collapse.
        "OMP_NUM_THREADS": "1",
        "TQDM_DISABLE": "1",
        # Last words are not to die in a buffer.
        "PYTHONUNBUFFERED": "1",
        # Nothing is to be fetched: the folder has no weights, and there is no tokenizer.
        "HF_HUB_OFFLINE": "1",
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1",
        # Otherwise /health generates a token, and takes a second.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
        # Otherwise /health_generate says after 20 s that it is not well, in the midst of a long step.
        "SGLANG_HEALTH_CHECK_TIMEOUT": str(int(ANSWER_S)),
    }
    if site.part is not Part.whole and device is Device.cpu:
        # Sending a cached prefix while the rest is computed waits for CUDA's events: it would end the server.
        environ |= {"MC_FORCE_TCP": "1", "MOONCAKE_PROTOCOL": "tcp", "SGLANG_DISAGG_PREFILL_EARLY_SEND_CACHED_PREFIX": "false"}
    if site.part is not Part.whole and site.interface != LOOPBACK:
        # Otherwise KV goes by the first network device that SGLang finds.
        environ["SGLANG_HOST_IP"] = site.interface
    if "TMPDIR" in config.sglang.environ:
        remedy = "leave it out: its sockets lie in the cell's folder in scratch; set paths.scratch"
        raise UserError("engine.sglang.environ.TMPDIR", config.sglang.environ["TMPDIR"], remedy)
    environ |= config.sglang.environ
    # Paths of sockets must be short.
    environ["TMPDIR"] = str(site.folder / "tmp")
    return environ
