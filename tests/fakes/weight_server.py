"""The part of SGLang's HTTP API that takes in weights, with ranks as threads that really meet and really receive over gloo.

Like SGLang: an update outside of begin and end is refused; what is missing or unknown is passed over with success; the group's keys
stand behind its name, its name and a slash, and the device.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as c10d
from safetensors.torch import load_file

from gyre_hpc.engines.sglang.parts import Refused, ServerLost

_PATIENCE = timedelta(seconds=30)


class WeightServer:
    """An Upstream as far as `ask` goes. `wrong`: by path, an answer in place of the right one, an exception, or None for silence.
    `extra`: tensors that each rank waits for beyond those it is told of, with an answer never."""

    def __init__(self, world: int = 1) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.weights: list[dict[str, torch.Tensor]] = [{} for _ in range(world)]
        self.label = "0.0"
        self.is_open = False
        self.wrong: dict[str, Any] = {}
        self.extra = 0
        self.receiving: list[asyncio.Future[None]] = []
        self._groups: dict[str, list[Any]] = {}

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for asked, body in self.asked if asked == path]

    async def ask(self, path: str, body: Mapping[str, Any], deadline_s: float) -> Any:
        self.asked.append((path, dict(body)))
        try:
            async with asyncio.timeout(deadline_s):
                if path in self.wrong:
                    return await self._wrongly(self.wrong[path])
                return await getattr(self, "_" + path.removeprefix("/"))(body)
        except TimeoutError:
            raise ServerLost(f"{path}: no answer within {deadline_s:g} s") from None

    async def _wrongly(self, answer: Any) -> Any:
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _init_weights_update_group(self, body: Mapping[str, Any]) -> Any:
        name, world = body["group_name"], body["world_size"]
        assert body["backend"] == "gloo" and body["rank_offset"] == 1 and world == 1 + len(self.weights)
        ranks = [
            asyncio.to_thread(_meet, body["master_address"], body["master_port"], name, 1 + n, world) for n in range(len(self.weights))
        ]
        self._groups[name] = await asyncio.gather(*ranks)
        return {"success": True, "message": ""}

    async def _destroy_weights_update_group(self, body: Mapping[str, Any]) -> Any:
        if body["group_name"] not in self._groups:
            raise Refused("The group to be destroyed does not exist.")
        for group in self._groups.pop(body["group_name"]):
            group.abort()
        return {"success": True, "message": ""}

    async def _begin_weight_update(self, body: Mapping[str, Any]) -> Any:
        if self.is_open:
            raise Refused("a weight-update session is already open")
        self.is_open = True
        return {"success": True, "message": ""}

    async def _end_weight_update(self, body: Mapping[str, Any]) -> Any:
        self.is_open = False
        return {"success": True, "message": ""}

    async def _update_weights_from_distributed(self, body: Mapping[str, Any]) -> Any:
        if not self.is_open:
            raise Refused("update_weights_from_distributed must run between begin_weight_update() and end_weight_update()")
        groups = self._groups[body["group_name"]]
        self.receiving = [
            asyncio.ensure_future(asyncio.to_thread(self._receive, group, into, body))
            for group, into in zip(groups, self.weights, strict=True)
        ]
        # A server goes on with what it was asked when its client has hung up.
        await asyncio.shield(asyncio.gather(*self.receiving))
        self.label = body.get("weight_version", self.label)
        return {"success": True, "message": ""}

    def _receive(self, group: Any, into: dict[str, torch.Tensor], body: Mapping[str, Any]) -> None:
        told = list(zip(body["names"], body["dtypes"], body["shapes"], strict=True))
        for name, dtype, shape in told + told[-1:] * self.extra:
            into[name] = torch.empty(shape, dtype=getattr(torch, dtype))
            group.broadcast([into[name]], c10d.BroadcastOptions()).wait(_PATIENCE)

    async def _update_weights_from_disk(self, body: Mapping[str, Any]) -> Any:
        assert body["load_format"] == "safetensors", "a server that started without weights would look for none"
        for into in self.weights:
            into.update(load_file(f"{body['model_path']}/model.safetensors"))
        self.label = body["weight_version"]
        return {"success": True, "message": ""}


def _meet(host: str, port: int, name: str, rank: int, world: int) -> Any:
    store: Any = c10d.TCPStore(host, port, None, False, _PATIENCE, wait_for_workers=False)
    for prefix in (name, f"{name}/", "cpu/"):
        store = c10d.PrefixStore(prefix, store)
    return c10d.ProcessGroupGloo(store, rank, world, _PATIENCE)
