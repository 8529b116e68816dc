"""A scripted Chat Completions server for harness tests: answers in order, keeps every request."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CUT = "cut"
"""Answer that breaks off in the middle of its body."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)


@dataclass
class ChatApi:
    """`answers`: text (final), `$ command`, an int (HTTP status) or CUT, in order."""

    answers: list[str | int]
    total_tokens: int = 10
    seen: list[Seen] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(api: ChatApi) -> Iterator[ChatApi]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            api.seen.append(Seen(self.path, {name.lower(): value for name, value in self.headers.items()}, raw))
            answer = api.answers.pop(0)
            if isinstance(answer, int):
                self._reply(answer, "application/json", b'{"error":"no"}')
            elif answer == CUT:
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"choices"')
                self.close_connection = True
            elif api.seen[-1].body["stream"]:
                self._stream(_message(answer, len(api.seen)), api.total_tokens)
            else:
                body = {"choices": [{"message": _message(answer, len(api.seen))}], "usage": {"total_tokens": api.total_tokens}}
                self._reply(200, "application/json", json.dumps(body).encode())

        def _reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, message: dict[str, Any], total: int) -> None:
            events = [{"choices": [{"delta": delta}]} for delta in _deltas(message)]
            events.append({"choices": [], "usage": {"total_tokens": total}})
            data = ": keep-alive\n\n" + "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for start in range(0, len(data), 37):
                piece = data[start : start + 37].encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_port}/e/train-0-0-0"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _message(answer: str, number: int) -> dict[str, Any]:
    if not answer.startswith("$ "):
        return {"role": "assistant", "content": answer}
    function = {"name": "shell", "arguments": json.dumps({"command": answer[2:]})}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}


def _deltas(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The message in pieces, arguments torn in two."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": letter} for letter in message["content"]]
    for index, call in enumerate(message.get("tool_calls", ())):
        text = call["function"]["arguments"]
        half = len(text) // 2
        deltas.append({"tool_calls": [{**call, "index": index, "function": {"name": "shell", "arguments": text[:half]}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": text[half:]}}]})
    return deltas
