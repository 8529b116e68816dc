"""OpenAI Chat Completions over one kept-alive connection, with retries. Standard library only, and only its cheap modules:
CPython's `_socket` and `_json` are the C halves of `socket` and `json`, whose Python halves cost 25 ms of CPU per process start.
"""

from __future__ import annotations

import _json
import _socket
import time

TYPE_CHECKING = False  # as typing has it; importing typing costs 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Message = dict[str, Any]

ATTEMPTS = 12
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
READ_TIMEOUT_S = 3600.0


class ApiError(Exception):
    """The API refused the request, or could not be reached in ATTEMPTS tries."""


class _Broken(Exception):
    """This try failed and another may succeed."""


class ChatClient:
    """`base_url` is http://HOST:PORT/PATH; https is not spoken."""

    def __init__(self, base_url: str, api_key: str, max_output_tokens: int, stream: bool) -> None:
        rest = base_url.removeprefix("http://")
        address, _, path = rest.partition("/")
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        self.path = f"/{path.rstrip('/')}/chat/completions"
        self.api_key = api_key
        self.max_output_tokens = max_output_tokens
        self.stream = stream
        self.connection: _socket.socket | None = None
        self.buffer = b""

    def complete(self, messages: list[Message], tools: list[Message], agent: str) -> tuple[Message, int]:
        """(assistant message, tokens of prompt and answer). The same bytes are sent until an answer is whole."""
        body: Message = {
            "model": "default",
            "messages": messages,
            "tools": tools,
            "max_tokens": self.max_output_tokens,
            "stream": self.stream,
        }
        if self.stream:
            body["stream_options"] = {"include_usage": True}
        request = self._request(to_json(body).encode(), agent)
        pause = FIRST_PAUSE_S
        for attempt in range(ATTEMPTS):
            try:
                return self._try(request)
            except (_Broken, OSError) as error:
                self._drop()
                if attempt == ATTEMPTS - 1:
                    raise ApiError(f"no answer after {ATTEMPTS} tries: {error}") from error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        raise AssertionError("unreachable")

    def parse(self, text: str) -> Any:
        """JSON -> value, None if it is not JSON."""
        try:
            return from_json(text)
        except (ValueError, StopIteration):
            return None

    def _request(self, body: bytes, agent: str) -> bytes:
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAuthorization: Bearer {self.api_key}\r\n"
            f"X-Agent-Id: {agent}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _try(self, request: bytes) -> tuple[Message, int]:
        if self.connection is None:
            self.connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
            self.connection.settimeout(READ_TIMEOUT_S)
            self.connection.connect((self.host, self.port))
            self.connection.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        _send(self.connection, request)
        status, headers = self._head()
        data = self._body(headers)
        if headers.get("connection", "").lower() == "close":
            self._drop()
        text = data.decode("utf-8", "replace")
        if status >= 500 or status in (408, 409, 429):
            raise _Broken(f"status {status}: {text[:200]}")
        if status != 200:
            raise ApiError(f"status {status}: {text[:200]}")
        if headers.get("content-type", "").startswith("text/event-stream"):
            return assemble(text)
        return self._whole(text)

    def _whole(self, text: str) -> tuple[Message, int]:
        answer = self.parse(text)
        if answer is None:
            raise _Broken("the answer is not JSON")
        message = answer["choices"][0]["message"]
        kept = {"role": "assistant", "content": message.get("content") or ""}
        if message.get("tool_calls"):
            kept["tool_calls"] = message["tool_calls"]
        return kept, answer.get("usage", {}).get("total_tokens", len(text) // 4)

    def _head(self) -> tuple[int, dict[str, str]]:
        while True:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if found:
                break
            self._more()
        self.buffer = rest
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(first.split(" ", 2)[1]), headers

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        return self._exactly(int(headers.get("content-length", 0)))

    def _chunks(self) -> bytes:
        body = []
        while True:
            size = int(self._line().split(b";")[0], 16)
            body.append(self._exactly(size))
            self._line()
            if not size:
                return b"".join(body)

    def _line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            self._more()
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            self._more()
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def _more(self) -> None:
        data = self.connection.recv(65536) if self.connection is not None else b""
        if not data:
            raise _Broken("connection closed")
        self.buffer += data

    def _drop(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection, self.buffer = None, b""


def _send(connection: _socket.socket, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[connection.send(view) :]


def assemble(text: str) -> tuple[Message, int]:
    """(assistant message, total tokens) of a whole event stream. An `error` event or a missing [DONE] breaks the try."""
    content: list[str] = []
    calls: dict[int, Message] = {}
    total, done = 0, False
    for line in text.splitlines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            done = True
            break
        event = from_json(data)
        if "error" in event:
            raise _Broken(f"error in the stream: {data[:200]}")
        total = (event.get("usage") or {}).get("total_tokens", total)
        for choice in event.get("choices", ()):
            delta = choice.get("delta", {})
            content.append(delta.get("content") or "")
            for piece in delta.get("tool_calls") or ():
                merge_call(calls, piece)
    if not done:
        raise _Broken("the stream ended early")
    message: Message = {"role": "assistant", "content": "".join(content)}
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return message, total or len(text) // 4


def merge_call(calls: dict[int, Message], piece: Message) -> None:
    """Add one streamed piece of a tool call to `calls` (index -> call)."""
    call = calls.setdefault(piece["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call["id"] = piece.get("id") or call["id"]
    function = piece.get("function", {})
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} has no JSON form")


class _Rules:
    """What `_json`'s scanner reads its options from."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


_scan: Callable[[str, int], tuple[Any, int]] = _json.make_scanner(_Rules())  # type: ignore[arg-type]
_encode: Callable[[Any, int], tuple[str, ...]] = _json.make_encoder(
    None, _refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, True
)


def from_json(text: str) -> Any:
    """JSON text -> value. Raises ValueError or StopIteration on anything else."""
    start = len(text) - len(text.lstrip())
    value, end = _scan(text, start)
    if text[end:].strip():
        raise ValueError("something follows the JSON value")
    return value


def to_json(value: Any) -> str:
    """Value of dicts, lists, str, int, float, bool, None -> JSON text."""
    return "".join(_encode(value, 0))
