"""OpenAI Chat Completions over one kept-alive connection, with retries. Standard library only, and only its cheap modules:
`_socket` and `_json` are the C halves of `socket` and `json`, whose Python halves cost 25 ms of CPU per process start.
"""

import time

try:
    import _json
    import _socket as socket
except ImportError:  # an interpreter without CPython's accelerators
    import socket

    _json = None

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

    def __init__(self, base_url, api_key, max_output_tokens, stream):
        rest = base_url.removeprefix("http://")
        address, _, path = rest.partition("/")
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        self.path = f"/{path.rstrip('/')}/chat/completions"
        self.api_key = api_key
        self.max_output_tokens = max_output_tokens
        self.stream = stream
        self.connection = None
        self.buffer = b""

    def complete(self, messages, tools, agent):
        """(assistant message, tokens of prompt and answer). The same bytes are sent until an answer is whole."""
        body = {"model": "default", "messages": messages, "tools": tools, "max_tokens": self.max_output_tokens, "stream": self.stream}
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

    def parse(self, text):
        """JSON -> value, None if it is not JSON."""
        try:
            return from_json(text)
        except (ValueError, StopIteration):
            return None

    def _request(self, body, agent):
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAuthorization: Bearer {self.api_key}\r\n"
            f"X-Agent-Id: {agent}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _try(self, request):
        if self.connection is None:
            self.connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self.connection.settimeout(READ_TIMEOUT_S)
            self.connection.connect((self.host, self.port))
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send(request)
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

    def _whole(self, text):
        answer = self.parse(text)
        if answer is None:
            raise _Broken("the answer is not JSON")
        message = answer["choices"][0]["message"]
        kept = {"role": "assistant", "content": message.get("content") or ""}
        if message.get("tool_calls"):
            kept["tool_calls"] = message["tool_calls"]
        return kept, answer.get("usage", {}).get("total_tokens", len(text) // 4)

    def _send(self, data):
        view = memoryview(data)
        while view:
            view = view[self.connection.send(view) :]

    def _head(self):
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

    def _body(self, headers):
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        return self._exactly(int(headers.get("content-length", 0)))

    def _chunks(self):
        body = []
        while True:
            size = int(self._line().split(b";")[0], 16)
            body.append(self._exactly(size))
            self._line()
            if not size:
                return b"".join(body)

    def _line(self):
        while b"\r\n" not in self.buffer:
            self._more()
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def _exactly(self, size):
        while len(self.buffer) < size:
            self._more()
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def _more(self):
        data = self.connection.recv(65536)
        if not data:
            raise _Broken("connection closed")
        self.buffer += data

    def _drop(self):
        if self.connection is not None:
            self.connection.close()
        self.connection, self.buffer = None, b""


def assemble(text):
    """(assistant message, total tokens) of a whole event stream. An `error` event or a missing [DONE] breaks the try."""
    content, calls, total, done = [], {}, 0, False
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
    message = {"role": "assistant", "content": "".join(content)}
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return message, total or len(text) // 4


def merge_call(calls, piece):
    """Add one streamed piece of a tool call to `calls` (index -> call)."""
    call = calls.setdefault(piece["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call["id"] = piece.get("id") or call["id"]
    function = piece.get("function", {})
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


class _Rules:
    """What `_json`'s scanner reads its options from."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


if _json is None:
    from json import dumps as to_json
    from json import loads as from_json
else:
    _scan = _json.make_scanner(_Rules())
    _encode = _json.make_encoder(None, None, _json.encode_basestring_ascii, None, ":", ",", False, False, True)

    def from_json(text):
        """JSON text -> value. Raises ValueError or StopIteration on anything else."""
        start = len(text) - len(text.lstrip())
        value, end = _scan(text, start)
        if text[end:].strip():
            raise ValueError("something follows the JSON value")
        return value

    def to_json(value):
        """Value of dicts, lists, str, int, float, bool, None -> JSON text."""
        return "".join(_encode(value, 0))
