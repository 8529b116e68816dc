"""Listening sockets stay within the range they were told, and never take a port that is taken."""

import errno
import socket
from collections.abc import Iterator

import pytest

from gyre_hpc import ports


@pytest.fixture(autouse=True)
def unrestricted() -> Iterator[None]:
    yield
    ports.restrict("")


def test_without_a_range_any_free_port_is_taken() -> None:
    with ports.listen("127.0.0.1") as listener:
        assert listener.getsockname()[1] > 0


def test_ports_come_from_the_range_until_it_is_full() -> None:
    with ports.listen("127.0.0.1") as taken:
        port = taken.getsockname()[1]
        ports.restrict(f"{port}-{port + 2}")
        held: list[socket.socket] = []
        try:
            with pytest.raises(OSError) as full:
                for _ in range(4):
                    held.append(ports.listen("127.0.0.1"))
            assert full.value.errno == errno.EADDRINUSE and "network.port_range" in str(full.value)
            numbers = [listener.getsockname()[1] for listener in held]
            assert port not in numbers and len(set(numbers)) == len(numbers)
            assert all(port < number <= port + 2 for number in numbers)
        finally:
            for listener in held:
                listener.close()
