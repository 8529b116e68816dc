"""The HTTP side of a snapshot store (docs/transport.md): threads of the standard library, so that it needs no event loop.

    GET  /snapshots/<version>            manifest, msgpack; the snapshot is held until this connection closes
    GET  /snapshots/<version>/<chunk>    this chunk and all after it, each followed by its CRC-32 (4 bytes, little-endian)
    POST /hand_ins/<update>              4 bytes length n, n bytes msgpack of HandIn, the sum; X-Checksum: CRC-32

Every request needs `Authorization: Bearer <run token>`, compared in constant time (401). 404: no such snapshot or
chunk; 409: stale hand-in; 400: malformed. A connection without a finished request within the deadline is closed, and one that does
not take a chunk within the deadline.
"""

import contextlib
import hmac
import socket
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import msgspec

from gyre_hpc.errors import StaleMessage
from gyre_hpc.ports import listen
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import HandIn
from gyre_hpc.transport.checksums import BYTES, ChunkSums
from gyre_hpc.transport.deadline_socket import DeadlineSocket
from gyre_hpc.transport.hand_ins import HandIns

if TYPE_CHECKING:
    from gyre_hpc.transport.snapshot_store import HostSnapshotStore

_MAX_BODY_BYTES = 1 << 36
_POLL_S = 0.2


class SnapshotServer:
    """Serves from construction to `close`."""

    def __init__(self, store: "HostSnapshotStore", hand_ins: HandIns, host: str, run_token: str, deadline_s: float) -> None:
        if not run_token:
            raise ValueError("run token is empty: a snapshot store is never served to everybody")
        self._http = _HTTPServer((host, 0), _Handler, bind_and_activate=False)
        self._http.socket.close()
        self._http.socket = listen(host)
        self._http.server_address = self._http.socket.getsockname()
        self._http.store, self._http.hand_ins = store, hand_ins
        self._http.authorization = f"Bearer {run_token}".encode()
        self._http.deadline_s = deadline_s
        self.url = f"http://{host}:{self._http.server_address[1]}"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": _POLL_S}, name="snapshot-store", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and cut the connections that are open."""
        self._http.shutdown()
        self._http.server_close()
        self._http.cut()
        self._thread.join()


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    store: "HostSnapshotStore"
    hand_ins: HandIns
    authorization: bytes
    deadline_s: float

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        """Their threads notice."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A puller that went away or was too slow is its own trouble; other errors are ours and are shown."""
        import sys

        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HTTPServer

    def setup(self) -> None:
        assert isinstance(self.request, socket.socket)
        self._held: set[Version] = set()
        self.connection = self.request
        self._socket = DeadlineSocket(self.request, self.server.deadline_s)
        self.rfile = self._socket.makefile()
        self.wfile = _Writer(self._socket)  # type: ignore[assignment]

    def finish(self) -> None:
        for version in self._held:
            self.server.store.release(version)

    def handle_one_request(self) -> None:
        self._socket.extend(self.server.deadline_s)
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        """One line per chunk would drown everything else."""

    def do_GET(self) -> None:
        if not self._authorized():
            return
        parts = self.path.strip("/").split("/")
        try:
            if parts[0] != "snapshots" or len(parts) not in (2, 3):
                raise KeyError(self.path)
            version = Version.parse(parts[1])
            self._hold(version)
            if len(parts) == 2:
                self._answer(200, msgspec.msgpack.encode(self.server.store.manifest(version)))
            else:
                self._stream(self.server.store.chunks(version), int(parts[2]))
        except (KeyError, ValueError, IndexError) as error:
            self._answer(404, str(error).encode())

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length") or ""
        if not self._authorized():
            return
        parts = self.path.strip("/").split("/")
        if parts[0] != "hand_ins" or len(parts) != 2 or not length.isdecimal() or not 4 <= int(length) <= _MAX_BODY_BYTES:
            self._refuse(400, "expected POST /hand_ins/<update> with a body")
            return
        body = self._read(int(length))
        try:
            if zlib.crc32(body) != int(self.headers.get("X-Checksum") or -1):
                raise ValueError("checksum does not match")
            meta_end = 4 + int.from_bytes(body[:4], "little")
            hand_in = msgspec.msgpack.decode(body[4:meta_end], type=HandIn)
            self.server.hand_ins.store(int(parts[1]), hand_in, bytes(body[meta_end:]))
        except StaleMessage as error:
            self._answer(409, str(error).encode())
        except (ValueError, msgspec.DecodeError) as error:
            self._answer(400, str(error).encode())
        else:
            self._answer(204, b"")

    def _authorized(self) -> bool:
        shown = (self.headers.get("Authorization") or "").encode("latin-1", "replace")
        if hmac.compare_digest(shown, self.server.authorization):
            return True
        self._refuse(401, "wrong or missing run token")
        return False

    def _hold(self, version: Version) -> None:
        if version not in self._held:
            self.server.store.acquire(version)
            self._held.add(version)

    def _stream(self, chunks: ChunkSums, first: int) -> None:
        """One answer for all: a puller never waits for a request to travel."""
        rest = [chunks.chunk(index) for index in range(first, len(chunks))]
        if not rest:
            raise IndexError(f"there is no chunk {first} of {len(chunks)}")
        self._begin(200, sum(len(chunk) + BYTES for chunk in rest))
        for index, chunk in enumerate(rest, first):
            self._socket.extend(self.server.deadline_s)
            self.wfile.write(chunk)
            # While this is computed, the chunk is on its way.
            self.wfile.write(chunks.of(index))

    def _read(self, length: int) -> memoryview:
        body = memoryview(bytearray(length))
        done = 0
        while done < length:
            count = self.rfile.readinto(body[done:])
            if not count:
                raise ConnectionError("peer closed in the middle of a hand-in")
            done += count
        return body

    def _refuse(self, status: int, text: str) -> None:
        """Answer without having read the body: the connection cannot be used again."""
        self.close_connection = True
        self._answer(status, text.encode())

    def _answer(self, status: int, body: bytes) -> None:
        self._begin(status, len(body))
        if body:
            self.wfile.write(body)

    def _begin(self, status: int, length: int) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()


class _Writer:
    """The unbuffered writing side of a handler."""

    closed = False

    def __init__(self, sock: DeadlineSocket) -> None:
        self._sock = sock

    def write(self, data: "bytes | memoryview") -> int:
        self._sock.sendall(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered."""
