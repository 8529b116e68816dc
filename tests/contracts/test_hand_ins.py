"""Contract of SnapshotStore: sums handed in."""

import socket
from urllib.parse import urlsplit

import numpy as np
import pytest

from gyre_hpc.errors import TransferFailed
from gyre_hpc.protocol.to_batch import HandIn
from gyre_hpc.transport.snapshot_store import HostSnapshotStore

TOKEN = "secret-token"


@pytest.fixture
def stores():
    opened = []

    def make(**options):
        store = HostSnapshotStore(chunk_bytes=1000, deadline_s=5.0, **options)
        opened.append(store)
        return store, store.serve("127.0.0.1", TOKEN)

    yield make
    for store in opened:
        store.close()


@pytest.mark.parametrize(
    "request_text",
    [
        "POST /hand_ins/1 HTTP/1.1\r\nContent-Length: many\r\n",
        "POST /hand_ins/1 HTTP/1.1\r\nContent-Length: 3\r\n",
        "POST /hand_ins/one HTTP/1.1\r\nContent-Length: 8\r\n",
        "POST /elsewhere HTTP/1.1\r\nContent-Length: 8\r\n",
        "POST /hand_ins/1 HTTP/1.1\r\nContent-Length: 8\r\nX-Checksum: 1\r\n",
    ],
)
def test_a_malformed_hand_in_is_refused_and_the_store_goes_on(stores, request_text):
    core, url = stores()
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), 5) as peer:
        peer.sendall(f"{request_text}Authorization: Bearer {TOKEN}\r\n\r\n".encode() + b"12345678")
        assert peer.recv(100).startswith(b"HTTP/1.1 400")
    core.hand_in(url, 1, HandIn("cell-1", 0, ()), b"abcd", 5.0)
    assert len(core.held(1)) == 1


def test_a_hand_in_arrives_whole_and_once(stores):
    (core, url), (satellite, _) = stores(), stores()
    mine, data = HandIn("cell-2", 1, ("3:0", "3:4")), np.arange(999, dtype="<f4").tobytes()
    for _ in range(2):
        satellite.hand_in(url, 3, mine, data, 5.0)
    assert core.held(3) == {("cell-2", 1): (mine, data)}
    assert core.held(2) == {}


def test_what_a_cell_hands_in_again_in_one_batch_stands_beside_what_it_handed_in_before(stores):
    (core, url), (satellite, _) = stores(), stores()
    first, second = HandIn("cell-2", 1, ("3:0",)), HandIn("cell-2", 2, ("3:1",))
    satellite.hand_in(url, 3, first, b"1111", 5.0)
    satellite.hand_in(url, 3, second, b"2222", 5.0)
    satellite.hand_in(url, 3, first, b"1111", 5.0)
    assert core.held(3) == {("cell-2", 1): (first, b"1111"), ("cell-2", 2): (second, b"2222")}


def test_an_older_fence_that_was_never_here_is_refused(stores):
    (core, url), (satellite, _) = stores(), stores()
    satellite.hand_in(url, 3, HandIn("cell-2", 2, ("3:1",)), b"2222", 5.0)
    with pytest.raises(TransferFailed, match="409.*fence 1"):
        satellite.hand_in(url, 3, HandIn("cell-2", 1, ("3:0",)), b"1111", 5.0)
    assert list(core.held(3)) == [("cell-2", 2)]


def test_another_sum_under_the_same_key_is_refused(stores):
    (core, url), (satellite, _) = stores(), stores()
    satellite.hand_in(url, 3, HandIn("cell-2", 1, ("3:0",)), b"1111", 5.0)
    with pytest.raises(TransferFailed, match="409"):
        satellite.hand_in(url, 3, HandIn("cell-2", 1, ("3:0",)), b"9999", 5.0)
    assert core.held(3)[("cell-2", 1)][1] == b"1111"


def test_a_forgotten_update_takes_nothing_any_more(stores):
    (core, url), (satellite, _) = stores(), stores()
    satellite.hand_in(url, 3, HandIn("cell-2", 1, ("3:0",)), b"1111", 5.0)
    core.forget(4)
    assert core.held(3) == {}
    with pytest.raises(TransferFailed, match="409"):
        satellite.hand_in(url, 3, HandIn("cell-2", 1, ("3:0",)), b"1111", 5.0)
