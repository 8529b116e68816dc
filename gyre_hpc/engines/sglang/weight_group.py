"""Weights over a process group of this process and the server's ranks, in portions, between /begin_ and /end_weight_update.

Both ends of each step run at the same time: the server is asked to meet or to receive, while a thread here meets or sends. Whichever
fails first ends the other, and the group with it, so that neither waits for ever. Each rank cuts its shard out of the whole tensors.

Only the last portion carries the version's label, and the flush: until then the server calls itself what it was.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from gyre_hpc.engines.sglang.parts import Refused, ServerLost, Upstream
from gyre_hpc.engines.sglang.weight_buckets import BUCKET_BYTES, buckets
from gyre_hpc.engines.sglang.weight_checks import check_success, check_whole, item_bytes
from gyre_hpc.errors import TransferFailed
from gyre_hpc.models.parameters import parameter_shapes
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.identity import Version
from gyre_hpc.transport.broadcast import BroadcastGroup
from gyre_hpc.transport.c10d_pieces import Deadline

_DESTROY_S = 2.0
"""A server that does not answer this at the end is about to be ended anyway."""


class GroupSender:
    """WeightSender over a group. `backend`: gloo or nccl; `device`: where nccl sends from; `host`: where the server's `world` ranks reach
    this process; `deadline_s`: of a join, and of one whole transfer."""

    def __init__(
        self,
        *,
        model: Qwen3Config,
        dtype: str,
        backend: str,
        host: str,
        world: int,
        deadline_s: float,
        device: str = "cpu",
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._shapes, self._dtype, self._item_bytes = parameter_shapes(model), dtype, item_bytes(dtype)
        self._backend, self._device, self._host, self._world = backend, device, host, world
        self._deadline_s, self._bucket_bytes = deadline_s, bucket_bytes
        self._group: BroadcastGroup | None = None
        self._upstream: Upstream | None = None

    async def join(self, upstream: Upstream) -> None:
        """See WeightSender. With another server the group of the one before is left."""
        await self._leave()
        self._upstream = upstream
        group = self._group = await asyncio.to_thread(self._new_group)
        body = {
            "master_address": self._host,
            "master_port": group.port,
            "rank_offset": 1,
            "world_size": 1 + self._world,
            "group_name": group.name,
            "backend": self._backend,
        }
        asking = _ask(upstream, "/init_weights_update_group", body, self._deadline_s)
        try:
            await _together(asking, lambda: group.join(self._deadline_s), group.close)
        except (Refused, ServerLost, TransferFailed) as error:
            raise ServerLost(f"no group with the server's ranks: {error}") from error

    async def send(self, upstream: Upstream, version: Version, tensors: Mapping[str, Any], *, flush: bool) -> None:
        """See WeightSender. Raises ValueError, before anything is sent, on tensors that are not the model's."""
        check_whole(tensors, self._shapes)
        try:
            await self._send(upstream, version, tensors, flush, Deadline(self._deadline_s))
        except (Refused, ServerLost, TransferFailed) as error:
            await self._leave()
            raise ServerLost(f"weights {version} did not arrive whole: {error}") from error

    async def close(self) -> None:
        if self._group is not None and self._upstream is not None:
            # It may have no group any more, or be gone itself.
            with contextlib.suppress(Refused, ServerLost):
                await self._upstream.ask("/destroy_weights_update_group", {"group_name": self._group.name}, _DESTROY_S)
        await self._leave()

    async def _send(self, upstream: Upstream, version: Version, tensors: Mapping[str, Any], flush: bool, deadline: Deadline) -> None:
        group = self._group
        if group is None:
            raise ServerLost("there is no group with the server's ranks")
        portions = buckets({name: tensor.numel() * self._item_bytes for name, tensor in tensors.items()}, self._bucket_bytes)
        await _ask(upstream, "/begin_weight_update", {}, _left_s(deadline))
        for names in portions:
            is_last = names is portions[-1]
            label = {"weight_version": str(version)} if is_last else {}
            body = self._described(names, group.name) | {"flush_cache": flush and is_last} | label
            send = functools.partial(group.send, [tensors[name] for name in names], self._dtype, _left_s(deadline))
            await _together(_ask(upstream, "/update_weights_from_distributed", body, _left_s(deadline)), send, group.close)
        await _ask(upstream, "/end_weight_update", {}, _left_s(deadline))

    def _described(self, names: tuple[str, ...], group_name: str) -> dict[str, Any]:
        shapes = [list(self._shapes[name]) for name in names]
        return {"names": list(names), "dtypes": [self._dtype] * len(names), "shapes": shapes, "group_name": group_name}

    async def _leave(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            await asyncio.to_thread(group.close)

    def _new_group(self) -> BroadcastGroup:
        return BroadcastGroup(
            host=self._host, backend=self._backend, device=self._device, num_members=self._world, longest_s=self._deadline_s
        )


def _left_s(deadline: Deadline) -> float:
    return deadline.left().total_seconds()


async def _ask(upstream: Upstream, path: str, body: Mapping[str, Any], deadline_s: float) -> None:
    check_success(path, await upstream.ask(path, body, deadline_s))


async def _together(asking: Coroutine[Any, Any, None], work: Callable[[], None], break_off: Callable[[], None]) -> None:
    """A request to the server, and this end's part of it in a thread. Both succeed, or the first error is raised, the other is broken
    off, and nothing of it runs on."""
    both = (asyncio.ensure_future(asking), asyncio.ensure_future(asyncio.to_thread(work)))
    try:
        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        for ended in done:
            ended.result()
    except BaseException:
        both[0].cancel()
        await asyncio.to_thread(break_off)
        await asyncio.gather(*both, return_exceptions=True)
        raise
