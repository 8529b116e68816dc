"""SGLang's HTTP API, as parts.py's Upstream. Deadlines are those of the HTTP library; nothing is tried twice.

An answer is read as SGLang 0.5.23 streams it with --incremental-streaming-output: every event has the news and the number of
tokens so far. The headers of an answer are sent in the very step of SGLang's loop in which it takes the request and passes it
to its scheduler: whoever has seen them can abort the request.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
import msgspec
import orjson

from gyre_hpc.engines.sglang.parts import Address, Chunk, NotAnswered, Refused, ServerLost

CONNECT_S = 10.0
CONTROL_S = 60.0
"""For what the server answers between two steps of its scheduler; one step may be a long prefill."""
MEMORY_S = 300.0
"""Taking or giving back all memory of a device."""

KEPT_S = 2.0
"""So long a connection waits for its next request. The server closes those that waited 5 s: a request sent in that very moment would
look like a server that is gone."""

_KNOWN = Chunk(start=0, ids=(), logprobs=(), cached=0, version="")


class _Meta(msgspec.Struct):
    completion_tokens: int
    weight_version: str
    finish_reason: dict[str, Any] | None = None
    prompt_tokens: int | None = None
    cached_tokens: int = 0
    num_retractions: int = 0
    output_token_logprobs: list[tuple[float, int, str | None]] = []


class _Event(msgspec.Struct):
    output_ids: list[int] = []
    meta_info: _Meta | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Event)


class Client:
    """To be made in the loop it is used in."""

    def __init__(self, address: Address) -> None:
        self._url = address.url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_S),
            headers={"Authorization": f"Bearer {address.key}"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        )

    async def close(self) -> None:
        await self._session.close()

    async def generate(self, body: Mapping[str, Any]) -> AsyncGenerator[Chunk, None]:
        # How long a call may wait and run is nobody's business here: attempts.py and watch.py end it.
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.post(self._url + "/generate", data=orjson.dumps(body), headers=headers) as response:
                if response.status != 200:
                    raise _refusal("/generate", response.status, await response.read())
                yield _KNOWN
                rest = b""
                async for data in response.content.iter_any():
                    *events, rest = (rest + data).split(b"\n\n")
                    for event in events:
                        if event.startswith(b"data: {"):
                            yield chunk_of(event[6:])
        except (aiohttp.ClientError, OSError) as error:
            raise ServerLost(f"POST /generate: {_told(error)}") from error

    async def abort(self, rid: str) -> None:
        await self._control("/abort_request", {"rid": rid}, CONTROL_S)

    async def abort_all(self) -> None:
        await self._control("/abort_request", {"abort_all": True}, CONTROL_S)

    async def flush(self, deadline_s: float) -> bool:
        path = f"/flush_cache?timeout={deadline_s:g}"
        status, _ = await self._answer("POST", path, b"{}", deadline_s + CONTROL_S)
        if status not in (200, 400):
            raise ServerLost(f"POST {path}: {status}")
        return status == 200

    async def release_memory(self) -> None:
        await self._control("/release_memory_occupation", {"tags": ["kv_cache", "weights"]}, MEMORY_S)

    async def resume_memory(self) -> None:
        await self._control("/resume_memory_occupation", {"tags": ["kv_cache", "weights"]}, MEMORY_S)

    async def ask(self, path: str, body: Mapping[str, Any], deadline_s: float) -> Any:
        return await self._json("POST", path, orjson.dumps(body), deadline_s)

    async def info(self) -> dict[str, Any]:
        return dict(await self._json("GET", "/server_info", None, CONTROL_S))

    async def is_well(self, deadline_s: float) -> bool:
        try:
            status, _ = await self._answer("GET", "/health_generate", None, deadline_s)
        except ServerLost:
            return False
        return status == 200

    async def _control(self, path: str, body: Mapping[str, Any], deadline_s: float) -> None:
        try:
            await self.ask(path, body, deadline_s)
        except Refused as error:
            raise ServerLost(str(error)) from error

    async def _json(self, method: str, path: str, body: bytes | None, deadline_s: float) -> Any:
        status, data = await self._answer(method, path, body, deadline_s)
        if status != 200:
            raise _refusal(path, status, data)
        try:
            return orjson.loads(data) if data else None
        except orjson.JSONDecodeError as error:
            # Some paths answer in words.
            if data[:1] not in (b"{", b"["):
                return data.decode("utf-8", "replace")
            raise ServerLost(f"{path}: no JSON: {error}") from error

    async def _answer(self, method: str, path: str, body: bytes | None, deadline_s: float) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=deadline_s, sock_connect=CONNECT_S)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            async with self._session.request(method, self._url + path, data=body, headers=headers, timeout=timeout) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise ServerLost(f"{method} {path}: {_told(error)}") from error


def chunk_of(event: bytes) -> Chunk:
    """An event's JSON. Raises Refused, NotAnswered, and ServerLost on what no server of this version says."""
    try:
        seen = _DECODER.decode(event)
    except msgspec.MsgspecError as error:
        raise ServerLost(f"/generate: an event that cannot be read: {error}") from error
    if seen.error is not None:
        code, message = (seen.error.get("code"), seen.error.get("message")) if isinstance(seen.error, dict) else (None, seen.error)
        kind = Refused if isinstance(code, int) and 400 <= code < 500 else NotAnswered
        raise kind(f"/generate: {message}")
    meta, ids = seen.meta_info, seen.output_ids
    if meta is None:
        raise ServerLost(f"/generate: an event without meta_info: {event[:200]!r}")
    if meta.prompt_tokens is None:
        # An abort of a request that stood in a queue repeats the last token sent before (and tells all log-probs once more).
        ids = ids[:-1]
    if len(meta.output_token_logprobs) < len(ids):
        raise ServerLost(f"/generate: {len(ids)} tokens with {len(meta.output_token_logprobs)} log-probs")
    told = meta.output_token_logprobs[len(meta.output_token_logprobs) - len(ids) :]
    if [one[1] for one in told] != ids:
        raise ServerLost("/generate: log-probs of other tokens")
    return Chunk(
        start=meta.completion_tokens - len(ids),
        ids=tuple(ids),
        logprobs=tuple(one[0] for one in told),
        cached=meta.cached_tokens,
        version=meta.weight_version,
        num_retractions=meta.num_retractions,
        finish=meta.finish_reason,
    )


def _refusal(path: str, status: int, data: bytes) -> Refused | ServerLost:
    text = f"{path}: {status} {data[:500].decode('utf-8', 'replace')}"
    return Refused(text) if 400 <= status < 500 else ServerLost(text)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()
