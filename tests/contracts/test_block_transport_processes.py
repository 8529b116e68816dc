"""Contract of BlockTransport between processes, which die, fall silent and are slow, for every kind that has them."""

import os
import signal
import threading

import msgspec
import psutil
import pytest

from gyre_hpc.errors import TransferFailed
from tests.fakes.block_ends import BETWEEN_PROCESSES, MIB, STOPS_AT_ONCE, Peer, expected, missing, opened_ends


@pytest.fixture(params=BETWEEN_PROCESSES)
def far_kind(request, needs):
    needs(request.param, missing(request.param))
    return request.param


@pytest.fixture
def end():
    with opened_ends() as make:
        yield make


@pytest.fixture
def peer():
    started = []

    def start(kind, size=MIB):
        started.append(Peer(kind, size))
        return started[-1]

    yield start
    for one in started:
        one.close()


def _wait_for_status(pid: int, status: str) -> None:
    """Until the process is in that state."""
    pause = threading.Event()
    while psutil.Process(pid).status() != status:
        pause.wait(0.01)


def test_between_processes(far_kind, end, peer):
    sizes = [262_144] * 40
    reader, source = end(far_kind, 16 * MIB), peer(far_kind, 16 * MIB)
    for _ in range(2):
        ticket = source.offer(sizes)
        assert reader.fetch(ticket) == expected(sizes)
        assert source.ask(do="withdraw", ticket=msgspec.to_builtins(ticket)) is True


def test_a_source_that_died_before_the_fetch_fails_it(far_kind, end, peer):
    reader, source = end(far_kind), peer(far_kind)
    ticket = source.offer([1000])
    source.close()
    with pytest.raises(TransferFailed):
        reader.fetch(ticket, 5.0)


def test_a_source_killed_in_mid_transfer_fails_the_fetch_and_the_reader_goes_on(far_kind, end, peer):
    reader, source = end(far_kind, 64 * MIB), peer(far_kind, 64 * MIB)
    with pytest.raises(TransferFailed):
        reader.fetch(source.offer([60 * MIB], signal="SIGKILL"), 20.0)
    assert source.process.wait() == -signal.SIGKILL
    assert reader.fetch(peer(far_kind).offer([1000])) == expected([1000])


def test_a_silent_source_fails_the_fetch_by_its_deadline_and_nothing_is_written_afterwards(far_kind, end, peer):
    """C7, C10. It wakes up again later: what still comes hits nothing."""
    reader, source = end(far_kind, 64 * MIB), peer(far_kind, 64 * MIB)
    before = set(threading.enumerate())
    with pytest.raises(TransferFailed):
        reader.fetch(source.offer([60 * MIB], signal="SIGSTOP"), 1.0)
    kept = reader.memory.copy()
    source.process.send_signal(signal.SIGCONT)
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(60)
    assert not any(thread.is_alive() for thread in left if thread.name.startswith("fetch"))
    assert (reader.memory == kept).all()
    reader.transport.close()
    assert (reader.memory == kept).all()


def test_a_silent_source_that_never_answered_the_claim_fails_the_fetch_by_its_deadline(far_kind, end, peer):
    reader, source = end(far_kind), peer(far_kind)
    ticket = source.offer([1000])
    source.process.send_signal(signal.SIGSTOP)
    with pytest.raises(TransferFailed):
        reader.fetch(ticket, 0.5)


def test_after_a_reader_died_withdrawal_says_whether_its_blocks_are_quiet(far_kind, end, peer):
    source, reader = end(far_kind, 64 * MIB), peer(far_kind, 64 * MIB)
    ticket = source.offer([60 * MIB], deadline_s=120.0)
    reader.order(do="fetch", ticket=msgspec.to_builtins(ticket), deadline_s=60.0, signal="SIGKILL")
    assert reader.answer() == {"dead": -signal.SIGKILL}
    assert source.transport.withdraw(ticket) is (far_kind in STOPS_AT_ONCE)
    assert end(far_kind).fetch(source.offer([1000])) == expected([1000])


def test_a_slow_reader_gets_nothing_that_was_written_after_the_withdrawal(far_kind, end, peer):
    """C9: pages are used again as soon as they are quiet."""
    source, reader = end(far_kind, 64 * MIB), peer(far_kind, 64 * MIB)
    ticket = source.offer([60 * MIB], deadline_s=60.0)
    reader.order(do="fetch", ticket=msgspec.to_builtins(ticket), deadline_s=60.0, signal="SIGSTOP")
    _wait_for_status(reader.process.pid, psutil.STATUS_STOPPED)
    assert source.transport.withdraw(ticket) is (far_kind in STOPS_AT_ONCE)
    source.memory[:] = 255
    os.kill(reader.process.pid, signal.SIGCONT)
    assert "failed" in reader.answer()
