"""What a server holds of the memory it gives back to the trainer: of each device, or, on a CPU, of the machine.

nvidia-smi is asked, a program of the driver: SGLang's library for the same figures is in its own environment. The figures are
those of whole devices, so that whoever else holds memory there shows too. Not run on a GPU yet.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from gyre_hpc.config.engine_schema import Device
from gyre_hpc.engines.sglang.parts import Holder, ServerLost
from gyre_hpc.errors import UserError
from gyre_hpc.observability.memory import bytes_of, free_bytes
from gyre_hpc.protocol.to_batch import RankMemory

ASK_S = 30.0
_MIB = 1 << 20
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,memory.free,memory.used", "--format=csv,noheader,nounits")


class ServerMemory:
    """One figure per rank whose device is on this node; on a CPU one for the first rank, of all of the server's processes."""

    def __init__(self, holder: Holder, device: Device, *, rank: int, num_local: int) -> None:
        """device: not auto. num_local: ranks on this node."""
        self._holder, self._device, self._rank, self._num_local = holder, device, rank, num_local

    async def measure(self) -> list[RankMemory]:
        """Raises ServerLost when the devices cannot be asked."""
        if self._device is Device.cpu:
            return [RankMemory(rank=self._rank, free=free_bytes(), used=bytes_of(self._holder.pids()))]
        figures = visible(parse(await _ask()), os.environ)[: self._num_local]
        if len(figures) < self._num_local:
            raise ServerLost(f"nvidia-smi shows {len(figures)} of the cell's {self._num_local} devices")
        return [RankMemory(rank=rank, free=free, used=used) for rank, (free, used) in enumerate(figures, start=self._rank)]


def kv_room(info: Mapping[str, Any], least: int) -> int:
    """KV tokens a server says it has (/server_info). Raises UserError when these are fewer than one call may need: it takes less memory
    than it was told to where the device has no more, and would answer long calls in part, or not at all."""
    room = int(info["max_total_num_tokens"])
    if room < least:
        remedy = f"a call may need {least}; give it more by engine.sglang.flags.mem-fraction-static, or lower model.max_context"
        raise UserError("engine.kv_tokens", room, f"so many tokens are all that SGLang finds memory for, and {remedy}")
    return room


Figures = dict[str, tuple[int, int]]
"""Index and UUID of a device, either as its name -> (free, used) in bytes."""


def parse(text: str) -> Figures:
    """nvidia-smi's answer. Raises ServerLost on anything else."""
    figures: Figures = {}
    try:
        for line in text.strip().splitlines():
            index, uuid, free, used = (field.strip() for field in line.split(","))
            figures[index] = figures[uuid] = (int(free) * _MIB, int(used) * _MIB)
    except ValueError as error:
        raise ServerLost(f"nvidia-smi: {error}: {text[:300]!r}") from error
    return figures


def visible(figures: Figures, environ: Mapping[str, str]) -> list[tuple[int, int]]:
    """Of the devices that CUDA_VISIBLE_DEVICES names (all, without it), in its order. Raises ServerLost on an unknown one."""
    names = environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return [figure for name, figure in figures.items() if name.isdigit()]
    try:
        return [_named(figures, name.strip()) for name in names.split(",") if name.strip()]
    except KeyError as error:
        raise ServerLost(f"nvidia-smi does not show device {error} of CUDA_VISIBLE_DEVICES={names}") from None


def _named(figures: Figures, name: str) -> tuple[int, int]:
    """A UUID may be cut short."""
    return figures[name] if name in figures else next((f for uuid, f in figures.items() if uuid.startswith(name)), None) or figures[name]


async def _ask() -> str:
    try:
        process = await asyncio.create_subprocess_exec(*_QUERY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    except OSError as error:
        raise ServerLost(f"nvidia-smi: {error}") from error
    answer = asyncio.create_task(process.communicate())
    await asyncio.wait((answer,), timeout=ASK_S)
    if not answer.done():
        process.kill()
    output, complaint = await answer
    if process.returncode != 0:
        raise ServerLost(f"nvidia-smi ended with {process.returncode}: {(output + complaint)[:300].decode('utf-8', 'replace')}")
    return output.decode()
