"""A transfer of weights that is refused, not confirmed, or meets silence: the sender says so in time, and nobody waits for ever."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.engines.sglang.parts import Refused, ServerLost
from gyre_hpc.errors import TransferFailed
from tests.fakes.weight_senders import MODEL, NEXT, UPDATE, delivered, group, of_kind, weights
from tests.fakes.weight_server import WeightServer

UNHEARD = {"success": False, "message": "partially updated. Please discard the whole weights."}


@pytest.mark.parametrize("answer", [UNHEARD, Refused("must run between"), ServerLost("connection reset"), "OK", {}])
@pytest.mark.parametrize(
    ("kind", "path"),
    [("group", "/begin_weight_update"), ("group", UPDATE), ("group", "/end_weight_update"), ("disk", "/update_weights_from_disk")],
)
def test_an_update_that_is_not_confirmed_is_lost(tmp_path: Path, kind: str, path: str, answer: Any) -> None:
    server = WeightServer()
    server.wrong[path] = answer
    with pytest.raises(ServerLost, match=r"weights 0\.1"):
        asyncio.run(delivered(of_kind(kind, tmp_path), server, weights()))


def test_the_reason_of_the_server_is_passed_on() -> None:
    server = WeightServer()
    server.wrong[UPDATE] = UNHEARD
    with pytest.raises(ServerLost, match="Please discard the whole weights"):
        asyncio.run(delivered(group(), server, weights()))


@pytest.mark.parametrize(
    ("kind", "path"),
    [("group", "/begin_weight_update"), ("group", UPDATE), ("group", "/end_weight_update"), ("disk", "/update_weights_from_disk")],
)
def test_a_silent_server_is_lost_at_the_deadline(tmp_path: Path, kind: str, path: str) -> None:
    server = WeightServer()
    server.wrong[path] = None

    async def updated() -> None:
        sender = of_kind(kind, tmp_path, deadline_s=1.0)
        await sender.join(server)
        with pytest.raises(ServerLost):
            await sender.send(server, NEXT, weights(), flush=True)
        await sender.close()

    asyncio.run(updated())


@pytest.mark.parametrize("answer", [None, Refused("Group name cannot be empty"), UNHEARD])
def test_a_server_that_does_not_come_to_the_group_is_lost(answer: Any) -> None:
    server = WeightServer()
    server.wrong["/init_weights_update_group"] = answer

    async def joined() -> None:
        sender = group(deadline_s=1.0)
        with pytest.raises(ServerLost, match="no group"):
            await sender.join(server)
        await sender.close()

    asyncio.run(joined())


def test_ranks_that_still_wait_are_let_go_when_the_update_fails() -> None:
    """They wait for tensors that never come, with a deadline of their own that is far away."""
    server = WeightServer(world=2)
    server.extra = 1

    async def updated() -> list[Any]:
        sender = group(world=2, deadline_s=2.0, bucket_bytes=10**6)
        await sender.join(server)
        with pytest.raises(ServerLost):
            await sender.send(server, NEXT, weights(), flush=True)
        return await asyncio.gather(*server.receiving, return_exceptions=True)

    ended = asyncio.run(updated())
    assert len(ended) == 2 and all(isinstance(error, RuntimeError) for error in ended)


class Unreadable:
    """A tensor whose copy in the server's type finds no memory."""

    shape = (MODEL.hidden_size,)

    def numel(self) -> int:
        return MODEL.hidden_size

    def detach(self) -> Any:
        raise RuntimeError("no memory for a copy")


def test_ranks_are_let_go_at_once_when_this_end_cannot_send() -> None:
    server, sent = WeightServer(world=2), weights()
    sent["model.norm.weight"] = Unreadable()  # type: ignore[assignment]

    async def updated() -> list[Any]:
        sender = group(world=2, bucket_bytes=10**6)
        await sender.join(server)
        with pytest.raises(ServerLost, match="no memory") as kept:
            await sender.send(server, NEXT, sent, flush=True)
        assert kept.value.__cause__ is not None, "whoever keeps the error keeps no connection"
        return await asyncio.gather(*server.receiving, return_exceptions=True)

    ended = asyncio.run(updated())
    assert len(ended) == 2 and all("onnection closed" in str(error) or "Connection reset" in str(error) for error in ended), ended


def test_after_a_failed_update_nothing_is_sent_until_a_new_join() -> None:
    server = WeightServer()
    server.wrong[UPDATE] = UNHEARD

    async def updated() -> None:
        sender = group()
        await sender.join(server)
        for _ in range(2):
            with pytest.raises(ServerLost):
                await sender.send(server, NEXT, weights(), flush=True)
        assert server.paths().count(UPDATE) == 1
        fresh = WeightServer()
        await delivered(sender, fresh, weights())
        assert fresh.label == "0.1"

    asyncio.run(updated())


def test_a_cancelled_update_leaves_no_group_behind() -> None:
    server = WeightServer()
    server.wrong[UPDATE] = None

    async def updated() -> None:
        sender = group()
        await sender.join(server)
        sending = asyncio.ensure_future(sender.send(server, NEXT, weights(), flush=True))
        while UPDATE not in server.paths():
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(ServerLost):
            await sender.send(server, NEXT, weights(), flush=True)

    asyncio.run(updated())


def test_weights_that_cannot_be_written_leave_the_server_as_it_was(tmp_path: Path) -> None:
    server = WeightServer()
    (tmp_path / "file").touch()
    with pytest.raises(TransferFailed, match="writing weights"):
        asyncio.run(delivered(of_kind("disk", tmp_path / "file"), server, weights()))
    assert server.asked == []
