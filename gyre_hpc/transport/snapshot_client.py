"""Pull a snapshot from another cell's store, or hand a sum in. One connection, one deadline for all of it."""

import http.client
import os
import socket
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import urlsplit

import msgspec

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import HandIn
from gyre_hpc.transport.checksums import BYTES, checksum
from gyre_hpc.transport.deadline_socket import DeadlineSocket
from gyre_hpc.transport.host_memory import HostMemory
from gyre_hpc.transport.packing import Manifest, Packed, from_block, num_chunks

_CHECKERS = max(1, min(4, (os.cpu_count() or 1) - 1))
"""A checksum takes longer than a fast network does; zlib lets other threads run meanwhile."""
_FAILURES = (OSError, http.client.HTTPException, ValueError, msgspec.DecodeError)


class _Connection(http.client.HTTPConnection):
    """Every socket operation gets what is left of `deadline_s`, connecting included."""

    def __init__(self, url: str, run_token: str, deadline_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"not an http URL: {url!r}")
        super().__init__(parts.hostname, parts.port, timeout=deadline_s)
        self._until = monotonic_s() + deadline_s
        self._headers = {"Authorization": f"Bearer {run_token}"}

    def connect(self) -> None:
        sock = socket.create_connection((self.host, self.port), max(0.001, self._until - monotonic_s()))
        self.sock = DeadlineSocket(sock, self._until - monotonic_s())

    def ask(self, method: str, path: str, body: "bytes | None" = None, **headers: str) -> http.client.HTTPResponse:
        """Raises TransferFailed on any status but 200 and 204, with the peer's own words."""
        self.request(method, path, body, {**self._headers, **headers})
        answer = self.getresponse()
        if answer.status not in (200, 204):
            raise TransferFailed(f"HTTP {answer.status}: {answer.read(500).decode(errors='replace')}")
        return answer


def pull(version: Version, sources: tuple[str, ...], run_token: str, deadline_s: float, memory: HostMemory) -> Packed:
    """Fetch `version` from the first source that has it whole. Raises TransferFailed naming what each source did."""
    until, reasons = monotonic_s() + deadline_s, []
    for index, url in enumerate(sources):
        # A source that hangs must leave time to ask those after it.
        share = (until - monotonic_s()) / (len(sources) - index)
        try:
            return _pull_from(url, version, run_token, share, memory)
        except (TransferFailed, *_FAILURES) as error:
            reasons.append(f"{url}: {error or type(error).__name__}")
    raise TransferFailed(f"snapshot {version} could not be pulled: {'; '.join(reasons) or 'no source given'}")


def hand_in(url: str, update: int, hand_in: HandIn, data: bytes, run_token: str, deadline_s: float) -> None:
    """Store `data` at the core. Raises TransferFailed."""
    meta = msgspec.msgpack.encode(hand_in)
    body = b"".join((len(meta).to_bytes(4, "little"), meta, data))
    try:
        connection = _Connection(url, run_token, deadline_s)
        try:
            connection.ask("POST", f"/hand_ins/{update}", body, **{"X-Checksum": str(zlib.crc32(body))}).read()
        finally:
            connection.close()
    except (TransferFailed, *_FAILURES) as error:
        raise TransferFailed(f"hand-in of {hand_in.cell} to {url} failed: {error or type(error).__name__}") from error


def _pull_from(url: str, version: Version, run_token: str, deadline_s: float, memory: HostMemory) -> Packed:
    connection = _Connection(url, run_token, deadline_s)
    try:
        path = f"/snapshots/{version}"
        manifest = msgspec.msgpack.decode(connection.ask("GET", path).read(), type=Manifest)
        if manifest.version != str(version) or manifest.chunk_bytes <= 0 or manifest.size < 0:
            raise TransferFailed(f"manifest is of snapshot {manifest.version}, not {version}")
        block = memory.take(manifest.size)
        if manifest.size:
            _receive(connection.ask("GET", f"{path}/0"), block.data, manifest.chunk_bytes)
        return from_block(manifest.entries, block)
    finally:
        connection.close()


def _receive(answer: http.client.HTTPResponse, block: memoryview, chunk_bytes: int) -> None:
    """Fill `block` with chunks; each is checked while the next ones come. Raises TransferFailed."""
    count = num_chunks(len(block), chunk_bytes)
    if answer.length != len(block) + count * BYTES:
        raise TransferFailed(f"stream has {answer.length} bytes, expected {len(block)} in {count} chunks")
    checks = deque[tuple[int, Future[bytes], bytearray]]()
    with ThreadPoolExecutor(_CHECKERS, "snapshot-check") as pool:
        for index in range(count):
            chunk, told = block[index * chunk_bytes : (index + 1) * chunk_bytes], bytearray(BYTES)
            _fill(answer, chunk)
            _fill(answer, memoryview(told))
            checks.append((index, pool.submit(checksum, chunk), told))
            while checks and checks[0][1].done():
                _verify(*checks.popleft())
        for check in checks:
            _verify(*check)


def _verify(index: int, found: Future[bytes], told: bytearray) -> None:
    if found.result() != told:
        raise TransferFailed(f"chunk {index} is damaged")


def _fill(answer: http.client.HTTPResponse, target: memoryview) -> None:
    done = 0
    while done < len(target):
        count = answer.readinto(target[done:])
        if not count:
            raise TransferFailed("peer closed in the middle of a chunk")
        done += count
