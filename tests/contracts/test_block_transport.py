"""Contract of BlockTransport, both ends in threads of one process, for every kind."""

import socket
import threading

import msgspec
import numpy as np
import psutil
import pytest

from gyre_hpc.config.schema import TransportConfig
from gyre_hpc.errors import TransferFailed, UserError
from gyre_hpc.transport.kv import create_block_transport
from gyre_hpc.transport.mooncake_needs import check_mooncake
from tests.fakes.block_ends import BETWEEN_PROCESSES, KINDS, MIB, End, expected, missing, opened_ends
from tests.fakes.block_peer import digest
from tests.fakes.socket_filters import may_filter


@pytest.fixture
def ready(needs):
    def check(kind: str) -> str:
        needs(kind, missing(kind))
        return kind

    return check


@pytest.fixture(params=KINDS)
def kind(request, ready):
    return ready(request.param)


@pytest.fixture(params=BETWEEN_PROCESSES)
def far_kind(request, ready):
    return ready(request.param)


@pytest.fixture
def end():
    with opened_ends() as make:
        yield make


LAYOUTS = {
    "one": [3 * MIB + 5],
    "several large ones": [9 * MIB, 1, 5 * MIB + 3],
    "many small ones": [4096] * 2000,
    "odd sizes and empty ones": [0, 1, 0, 4095, 7, 0],
    "only empty ones": [0, 0],
    "none": [],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_arrive_exactly(kind, end, layout):
    sizes = LAYOUTS[layout]
    source, target = end(kind, 16 * MIB), end(kind, 16 * MIB)
    ticket = source.offer(sizes)
    assert ticket.sizes == tuple(sizes)
    assert target.fetch(ticket) == expected(sizes)
    assert source.transport.withdraw(ticket)


def test_blocks_from_anywhere_go_anywhere(kind, end):
    source, target = end(kind), end(kind)
    pages = [source.memory[start : start + 1000] for start in (5000, 1000, 9000, 2000)]
    target.memory[:] = 7
    places = [target.memory[start : start + 1000] for start in (0, 8000, 3000, 6000)]
    target.transport.fetch(source.transport.offer(pages, 30), places, 30)
    assert digest(places) == digest(pages)
    untouched = np.ones(target.memory.size, dtype=bool)
    for start in (0, 8000, 3000, 6000):
        untouched[start : start + 1000] = False
    assert (target.memory[untouched] == 7).all()


def test_offers_stand_side_by_side_and_are_fetched_in_any_order(kind, end):
    source, target = end(kind), end(kind)
    layouts = [[1000, 24], [5], [4096] * 20]
    tickets = [source.offer(sizes) for sizes in layouts]
    for index in (2, 0, 1):
        assert target.fetch(tickets[index]) == expected(layouts[index])


def test_what_is_told_as_arrived_is_whole_while_the_rest_still_comes(kind, end):
    sizes = [3 * MIB] * 8
    source, target = end(kind, 32 * MIB), end(kind, 32 * MIB)
    ticket = source.offer(sizes)
    target.memory[:] = 0
    into, seen = target.blocks(sizes), []
    target.transport.fetch(ticket, into, 30.0, lambda count: seen.append((count, digest(into[:count]))))
    counts = [count for count, _ in seen]
    assert counts == sorted(counts) and counts[0] < counts[-1] == 8
    assert [found for _, found in seen] == [expected(sizes[:count]) for count in counts]


def test_two_readers_fetch_two_offers_at_once(kind, end):
    source, targets = end(kind, 16 * MIB), [end(kind, 16 * MIB), end(kind, 16 * MIB)]
    tickets = [source.offer([12 * MIB]), source.offer([300_000] * 30)]
    got = {}

    def fetch(index):
        got[index] = targets[index].fetch(tickets[index])

    threads = [threading.Thread(target=fetch, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {0: expected([12 * MIB]), 1: expected([300_000] * 30)}


def test_one_reader_fetches_two_offers_of_one_source_at_once(kind, end):
    source, target = end(kind, 16 * MIB), end(kind, 16 * MIB)
    halves = [target.memory[: 6 * MIB], target.memory[8 * MIB : 14 * MIB]]
    tickets = [source.transport.offer([source.memory[start : start + 6 * MIB]], 30) for start in (0, 8 * MIB)]
    target.memory[:] = 0
    threads = [threading.Thread(target=target.transport.fetch, args=(t, [half], 30)) for t, half in zip(tickets, halves, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (halves[0] == source.memory[: 6 * MIB]).all()
    assert (halves[1] == source.memory[8 * MIB : 14 * MIB]).all()


def test_an_offer_is_fetched_once(kind, end):
    source, target = end(kind), end(kind)
    ticket = source.offer([1000])
    target.fetch(ticket)
    with pytest.raises(TransferFailed, match="fetched already"):
        target.fetch(ticket)


@pytest.mark.parametrize("lie", [{"offer": "0" * 32}, {"sizes": (999,)}, {"kind": "other"}])
def test_a_wrong_nonce_size_or_kind_is_refused_and_the_offer_stands(kind, end, lie):
    source, target = end(kind), end(kind)
    ticket = source.offer([1000])
    wrong = msgspec.structs.replace(ticket, **lie)
    target.memory[:] = 3
    with pytest.raises(TransferFailed):
        target.transport.fetch(wrong, target.blocks(wrong.sizes), 5.0)
    assert (target.memory == 3).all()
    assert target.fetch(ticket) == expected([1000])


def test_targets_of_other_sizes_are_refused(kind, end):
    source, target = end(kind), end(kind)
    ticket = source.offer([1000, 10])
    with pytest.raises(TransferFailed, match="sizes"):
        target.transport.fetch(ticket, target.blocks([1000]), 5.0)


def test_a_target_that_cannot_be_written_is_refused(kind, end):
    source, target = end(kind), end(kind)
    ticket = source.offer([1000])
    block = target.blocks([1000])[0]
    block.flags.writeable = False
    with pytest.raises(TransferFailed, match="written"):
        target.transport.fetch(ticket, [block], 5.0)


def test_a_withdrawn_offer_is_refused(kind, end):
    source, target = end(kind), end(kind)
    ticket = source.offer([1000])
    assert source.transport.withdraw(ticket)
    assert source.transport.withdraw(ticket)
    with pytest.raises(TransferFailed):
        target.fetch(ticket, 5.0)


def test_an_offer_whose_deadline_is_over_is_refused(kind, end):
    source, target = end(kind), end(kind)
    with pytest.raises(TransferFailed, match="deadline"):
        target.fetch(source.offer([1000], deadline_s=0.0), 5.0)


def test_an_address_where_nobody_listens_fails(far_kind, end):
    source, target = end(far_kind), end(far_kind)
    ticket = source.offer([1000])
    with pytest.raises(TransferFailed):
        target.fetch(msgspec.structs.replace(ticket, address="127.0.0.1:1,127.0.0.1:1"), 5.0)


def _listening() -> int:
    return sum(connection.status == psutil.CONN_LISTEN for connection in psutil.Process().net_connections())


def test_close_ends_open_offers_and_leaves_no_thread_and_no_port(kind, end):
    end(kind)  # what a process starts once
    threads, ports = set(threading.enumerate()), _listening()
    source, target = End(kind, MIB), End(kind, MIB)
    target.fetch(source.offer([MIB]))
    ticket = source.offer([1000])
    source.transport.close()
    with pytest.raises(TransferFailed):
        target.fetch(ticket, 5.0)
    target.transport.close()
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
    assert set(threading.enumerate()) == threads
    assert _listening() == ports


def test_offer_outside_the_registered_memory_is_refused_by_mooncake(end, ready):
    source = end(ready("mooncake"))
    with pytest.raises(TransferFailed, match="registered"):
        source.transport.offer([np.zeros(10, dtype=np.uint8)], 5.0)


@pytest.mark.skipif(not may_filter(), reason="this kernel keeps socket filters for privileged processes")
def test_mooncakes_ports_answer_on_our_interface_alone(end, ready):
    source = end(ready("mooncake"))
    _, session = source.offer([1000]).address.split(",")
    port = int(session.rpartition(":")[2])
    socket.create_connection(("127.0.0.1", port), 5).close()
    with pytest.raises(TimeoutError):
        socket.create_connection(("127.0.0.2", port), 0.3)


def test_a_kind_that_is_unknown_is_named():
    with pytest.raises(UserError, match=r"transport\.kv='carrier pigeon'.*mooncake"):
        create_block_transport(TransportConfig(kv="carrier pigeon"), "127.0.0.1")
    assert create_block_transport(TransportConfig(kv="none"), "127.0.0.1") is None


def test_a_missing_wheel_or_library_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install mooncake-transfer-engine"):
        check_mooncake()
    monkeypatch.undo()

    def absent(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("ctypes.CDLL", absent)
    with pytest.raises(UserError, match="apt-get install libibverbs1"):
        check_mooncake()


def test_a_protocol_that_mooncake_has_not_is_named():
    with pytest.raises(UserError, match=r"transport\.kv_protocol"):
        create_block_transport(TransportConfig(kv="mooncake", kv_protocol="smoke"), "127.0.0.1")
