"""Contract of SnapshotStore, for tensors of torch and torch-free ones."""

import gc
import http.client
import socket
import threading
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

from gyre_hpc.errors import TransferFailed
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import HandIn
from gyre_hpc.transport import snapshot_server
from gyre_hpc.transport.checksums import BYTES, ChunkSums
from gyre_hpc.transport.snapshot_store import HostSnapshotStore

TOKEN = "secret-token"


def _tensors(kind: str, seed: int = 0) -> dict:
    values = np.random.default_rng(seed).normal(size=(300, 7)).astype(np.float32)
    if kind == "torch":
        whole = torch.from_numpy(values.copy())
        return {"a.weight": whole, "b": whole[:3].to(torch.bfloat16), "c": torch.arange(5), "turned": whole.T, "none": whole[:0]}
    return {"a.weight": values, "b": b"some bytes", "c": np.arange(5), "turned": values.T, "none": values[:0]}


def _same(left, right) -> bool:
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())
    return left == right


@pytest.fixture(params=["torch", "numpy"])
def kind(request):
    return request.param


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


def test_a_snapshot_shares_no_memory_with_what_it_was_put_from(kind):
    store, tensors = HostSnapshotStore(), _tensors(kind)
    store.put(Version(0, 1), tensors)
    before = tensors["a.weight"][0, 0].item()
    tensors["a.weight"][0, 0] = before + 1
    assert store.get(Version(0, 1))["a.weight"][0, 0] == before


def test_numpy_views_cannot_be_written():
    store = HostSnapshotStore()
    store.put(Version(0, 1), _tensors("numpy"))
    with pytest.raises(ValueError, match="read-only"):
        store.get(Version(0, 1))["a.weight"][0, 0] = 1.0


def test_get_of_an_unknown_version_names_what_is_there(kind):
    store = HostSnapshotStore()
    store.put(Version(0, 3), _tensors(kind))
    with pytest.raises(KeyError, match=r"0\.3"):
        store.get(Version(0, 1))


def test_the_two_newest_stay(kind):
    store = HostSnapshotStore()
    for step in range(4):
        store.put(Version(0, step), _tensors(kind, step))
    assert store.versions() == (Version(0, 2), Version(0, 3))


def test_a_held_snapshot_stays_until_it_is_released(kind):
    store = HostSnapshotStore()
    store.put(Version(0, 0), _tensors(kind))
    with store.hold(Version(0, 0)) as tensors:
        for step in (1, 2, 3):
            store.put(Version(0, step), _tensors(kind, step))
        assert store.versions() == (Version(0, 0), Version(0, 2), Version(0, 3))
        assert _same(tensors["c"], _tensors(kind)["c"])
    assert store.versions() == (Version(0, 2), Version(0, 3))


def test_an_older_version_that_was_just_put_is_kept(kind):
    store = HostSnapshotStore()
    for step in (5, 6, 2):
        store.put(Version(0, step), _tensors(kind, step))
    assert store.versions() == (Version(0, 2), Version(0, 6))


def test_a_snapshot_never_changes_once_put(kind):
    store = HostSnapshotStore()
    store.put(Version(0, 1), _tensors(kind))
    store.put(Version(0, 1), _tensors(kind))
    with pytest.raises(ValueError, match="never changes"):
        store.put(Version(0, 1), _tensors(kind, seed=1))


def test_a_pulled_snapshot_equals_the_source(kind, stores):
    (source, url), (puller, _) = stores(), stores()
    source.put(Version(1, 4), _tensors(kind))
    puller.pull(Version(1, 4), (url,), 5.0)
    got = puller.get(Version(1, 4))
    assert list(got) == list(_tensors(kind))
    assert all(_same(value, got[name]) for name, value in _tensors(kind).items())


def test_pull_goes_on_to_the_next_source(kind, stores):
    (_, empty), (source, url), (puller, _) = stores(), stores(), stores()
    source.put(Version(0, 1), _tensors(kind))
    puller.pull(Version(0, 1), ("http://127.0.0.1:1", empty, url), 5.0)
    assert puller.versions() == (Version(0, 1),)


def test_pull_without_any_good_source_says_what_each_did(stores):
    (_, empty), (puller, _) = stores(), stores()
    with pytest.raises(TransferFailed, match=r"127\.0\.0\.1:1: .*refused.*HTTP 404"):
        puller.pull(Version(0, 1), ("http://127.0.0.1:1", empty), 5.0)
    assert puller.versions() == ()


def test_a_wrong_token_gets_nothing_in_or_out(stores):
    source, url = stores()
    source.put(Version(0, 1), _tensors("numpy"))
    stranger = HostSnapshotStore()
    with pytest.raises(TransferFailed, match="401"):
        stranger.pull(Version(0, 1), (url,), 5.0)
    with pytest.raises(TransferFailed, match="401"):
        stranger.hand_in(url, 0, HandIn("cell-1", 0, ("0:1",)), b"abcd", 5.0)
    assert source.held(0) == {}


def test_a_store_is_never_served_without_a_token():
    with pytest.raises(ValueError, match="token"):
        HostSnapshotStore().serve("127.0.0.1", "")


def test_a_silent_source_fails_within_the_deadline(stores):
    puller, _ = stores()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(TransferFailed, match="timed out"):
            puller.pull(Version(0, 1), (url,), 0.2)


def _trickle(listener: socket.socket, stop: threading.Event) -> None:
    peer, _ = listener.accept()
    with peer:
        while not stop.wait(0.02):
            try:
                peer.sendall(b"X")
            except OSError:
                return


def test_a_source_that_trickles_fails_within_the_deadline(stores):
    puller, _ = stores()
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_trickle, args=(listener, stop))
        thread.start()
        try:
            with pytest.raises(TransferFailed):
                puller.pull(Version(0, 1), (f"http://127.0.0.1:{listener.getsockname()[1]}",), 0.3)
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("damaged", [0, 3])
def test_a_damaged_chunk_is_noticed(stores, monkeypatch, damaged):
    (source, url), (puller, _) = stores(), stores()
    source.put(Version(0, 1), _tensors("numpy"))
    right = ChunkSums.of

    def of(sums, index):
        return right(sums, index) if index != damaged else bytes(BYTES)

    monkeypatch.setattr(ChunkSums, "of", of)
    with pytest.raises(TransferFailed, match=f"chunk {damaged} is damaged"):
        puller.pull(Version(0, 1), (url,), 5.0)
    assert puller.versions() == ()


def test_a_source_that_dies_in_the_middle_of_a_chunk_leaves_nothing_behind(stores, monkeypatch):
    """C10."""
    (source, url), (puller, _) = stores(), stores()
    source.put(Version(0, 1), _tensors("numpy"))

    def die(handler, chunks, first):
        handler._begin(200, source.manifest(Version(0, 1)).size + BYTES * len(chunks))
        handler.wfile.write(bytes(chunks.chunk(0)) + chunks.of(0) + bytes(chunks.chunk(1))[:400])
        handler.request.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    monkeypatch.setattr(snapshot_server._Handler, "_stream", die)
    with pytest.raises(TransferFailed, match="closed"):
        puller.pull(Version(0, 1), (url,), 5.0)
    assert puller.versions() == ()


def _get(connection: http.client.HTTPConnection, path: str) -> bytes:
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.read()


def test_a_snapshot_being_pulled_is_not_dropped(stores):
    source, url = stores()
    source.put(Version(0, 0), _tensors("numpy"))
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
    _get(connection, "/snapshots/0.0")
    for step in (1, 2, 3):
        source.put(Version(0, step), _tensors("numpy", step))
    assert _get(connection, "/snapshots/0.0/1")[1000 : 1000 + BYTES] == source.chunks(Version(0, 0)).of(1)
    connection.close()


def test_a_stream_from_a_chunk_that_is_not_there_is_refused(stores):
    source, url = stores()
    source.put(Version(0, 0), _tensors("numpy"))
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
    connection.request("GET", "/snapshots/0.0/99", headers={"Authorization": f"Bearer {TOKEN}"})
    assert connection.getresponse().status == 404
    connection.close()


def test_a_puller_that_stops_reading_is_left_within_the_deadline(monkeypatch):
    source = HostSnapshotStore(chunk_bytes=1000, deadline_s=0.2)
    url = source.serve("127.0.0.1", TOKEN)
    source.put(Version(0, 0), {"weights": np.zeros(64 << 20, dtype=np.uint8)})
    left = threading.Event()
    whole = HostSnapshotStore.release
    monkeypatch.setattr(HostSnapshotStore, "release", lambda store, version: (whole(store, version), left.set()))
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
    connection.request("GET", "/snapshots/0.0/0", headers={"Authorization": f"Bearer {TOKEN}"})
    assert left.wait(30)
    connection.close()
    source.close()


def test_memory_of_a_dropped_snapshot_is_used_again_and_never_under_tensors_in_use(kind):
    store = HostSnapshotStore()
    store.put(Version(0, 0), _tensors(kind))
    kept = store.get(Version(0, 0))["a.weight"]
    for step in range(1, 6):
        store.put(Version(0, step), _tensors(kind, step))
        assert all(_same(value, _tensors(kind, step)[name]) for name, value in store.get(Version(0, step)).items())
    assert _same(kept, _tensors(kind)["a.weight"])


def test_many_pull_at_once(kind, stores):
    source, url = stores()
    source.put(Version(0, 1), _tensors(kind))
    pullers = [stores()[0] for _ in range(6)]
    threads = [threading.Thread(target=puller.pull, args=(Version(0, 1), (url,), 10.0)) for puller in pullers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(_same(puller.get(Version(0, 1))["turned"], _tensors(kind)["turned"]) for puller in pullers)


def test_tensors_in_use_outlive_their_snapshot(kind):
    store = HostSnapshotStore()
    store.put(Version(0, 0), _tensors(kind))
    kept = store.get(Version(0, 0))["a.weight"]
    for step in (1, 2):
        store.put(Version(0, step), _tensors(kind, step))
    gc.collect()
    assert _same(kept, _tensors(kind)["a.weight"])
