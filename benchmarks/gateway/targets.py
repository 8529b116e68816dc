"""What is measured, each in a process of its own on the same core: our gateway shard, LiteLLM's proxy, a bare pass-through."""

import dataclasses
import os
import socket
import sys
import urllib.request
import venv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from benchmarks.gateway.client import post
from benchmarks.gateway.plan import Plan
from benchmarks.gateway.processes import Process
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.protocol.tokens import execution_token

LITELLM = "litellm[proxy]==1.108.7"
_KEY = "sk-benchmark-0123456789abcdef0123456789abcdef"
_NAME = "gateway-0"


class Stub:
    """Engine, chat server and controller; its process and how to steer it."""

    def __init__(self, plan: Plan, folder: Path, core: int) -> None:
        path = folder / "plan.json"
        plan.write(path)
        self.process = Process([sys.executable, "-m", "benchmarks.gateway.stub", str(path)], core, folder / "stub.log")
        self.port = int(self.process.first_line())
        self.url = f"http://127.0.0.1:{self.port}"

    def tell(self, what: str) -> dict[str, int]:
        """route/MODE, release or held."""
        with urllib.request.urlopen(f"{self.url}/{what}", timeout=10) as answer:
            told: dict[str, int] = orjson.loads(answer.read())
        return told


class Target:
    """Somewhere a Chat Completions request can be sent."""

    name: str
    port: int
    process: Process | None = None

    def request(self, execution: int, body: bytes) -> bytes:
        """One request of one execution (others than our gateway know none)."""
        return post("/now/v1/chat/completions", body, _KEY)


class Floor(Target):
    """The stub itself: what client and upstream cost without a proxy."""

    def __init__(self, stub: Stub) -> None:
        self.name, self.port = "stub (floor)", stub.port


class PassThrough(Target):
    """Bare aiohttp."""

    def __init__(self, stub: Stub, folder: Path, core: int) -> None:
        self.name = "aiohttp pass-through"
        self.process = Process([sys.executable, "-m", "benchmarks.gateway.passthrough", stub.url], core, folder / "passthrough.log")
        self.port = int(self.process.first_line())


class LiteLlm(Target):
    """Their proxy, one worker, no database, no logging."""

    def __init__(self, stub: Stub, folder: Path, core: int, cache: Path) -> None:
        self.name = "litellm"
        environment = install(cache)
        config = folder / "litellm.yaml"
        config.write_text(
            f"model_list:\n- model_name: mock\n  litellm_params: {{model: openai/mock, api_base: '{stub.url}/now/v1', api_key: x}}\n"
            "litellm_settings: {telemetry: false, num_retries: 0}\n"
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [environment / "bin" / "litellm", "--config", config, "--host", "127.0.0.1", "--port", self.port, "--num_workers", 1]
        told = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_MASTER_KEY": _KEY,
            "NO_PROXY": "*",
            "no_proxy": "*",
        }
        # Their proxy prints to its standard output; nobody reads ours.
        quiet = ["sh", "-c", 'exec "$@" >&2', "sh", *map(str, command)]
        self.process = Process(quiet, core, folder / "litellm.log", told)
        self.process.wait_for(f"http://127.0.0.1:{self.port}/health/liveliness")

    def request(self, execution: int, body: bytes) -> bytes:
        return post("/v1/chat/completions", body, _KEY)


class GyreGateway(Target):
    """A shard as the supervisor starts it: the process main, a run folder, the journal with fsync."""

    def __init__(self, stub: Stub, plan: Plan, folder: Path, core: int, *, fsync: bool = True, **changes: Any) -> None:
        self.name = "gyre gateway" if fsync else "gyre without fsync"
        self._plan, self.folder = plan, RunFolder(folder)
        write_run_folder(self.folder, plan, changes, fsync=fsync)
        command = ["-m", "gyre_hpc.processes.gateway", "--name", _NAME, "--run", str(folder), "--attempt", "1", "--incarnation", "1"]
        self.process = Process([sys.executable, *command, "--supervisor", stub.url], core, folder / "gateway.log")
        kept = self.folder.root / "state" / f"{_NAME}-1.port"
        while not kept.exists():
            self.process.wait_for(stub.url)
        self.port = int(kept.read_text())
        self.process.wait_for(f"http://127.0.0.1:{self.port}/messages")
        self._tokens: dict[int, tuple[str, str]] = {}

    def request(self, execution: int, body: bytes) -> bytes:
        if execution not in self._tokens:
            name = f"train-{execution // 64}-{execution // 8 % 8}-{execution % 8}"
            self._tokens[execution] = (f"/e/{name}/v1/chat/completions", execution_token(self._plan.run_token, name))
        path, token = self._tokens[execution]
        return post(path, body, token, "X-Agent-Id: main\r\n")


def write_run_folder(folder: RunFolder, plan: Plan, changes: dict[str, Any], *, fsync: bool = True) -> None:
    """config.yaml and the run token. `changes` are fields of the group gateway."""
    config = Config()
    config.model = dataclasses.replace(config.model, tokenizer=plan.tokenizer, template=plan.template, max_context=4_000_000)
    config.harness.max_output_tokens = 8192
    config.journal.fsync = fsync
    config.gateway = dataclasses.replace(config.gateway, max_calls=4096, **changes)
    for path in (folder.root, folder.token.parent, folder.root / "logs"):
        path.mkdir(parents=True, exist_ok=True)
    folder.token.write_text(plan.run_token)
    store_config(config, folder.config)


def install(cache: Path) -> Path:
    """LiteLLM in an environment of its own below the cache; made once. Raises RuntimeError when it cannot be had."""
    folder = cache / "benchmarks" / LITELLM.replace("[proxy]==", "-")
    if not (folder / "bin" / "litellm").exists():
        print(f"installing {LITELLM} into {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        log = folder / "install.log"
        code = os.waitstatus_to_exitcode(os.system(f"'{folder}/bin/python' -m pip install '{LITELLM}' >'{log}' 2>&1"))
        if code:
            raise RuntimeError(f"pip install {LITELLM} failed: {log.read_text()[-300:]}")
    return folder


def close_all(processes: Iterable[Process | None]) -> None:
    for process in processes:
        if process is not None:
            process.close()
