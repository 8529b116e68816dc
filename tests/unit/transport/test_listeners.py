import socket

import pytest

from gyre_hpc.transport import listeners
from gyre_hpc.transport.listeners import confine_listeners
from tests.fakes.socket_filters import may_filter

FILTERS = pytest.mark.skipif(not may_filter(), reason="this kernel keeps socket filters for privileged processes")


@FILTERS
def test_a_listener_on_every_interface_answers_on_the_one_it_is_confined_to():
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        port = everywhere.getsockname()[1]
        assert confine_listeners("127.0.0.1") >= 1
        socket.create_connection(("127.0.0.1", port), 5).close()
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.2", port), 0.2)


def test_listeners_of_one_interface_are_left_as_they_are():
    with socket.create_server(("127.0.0.2", 0)) as own:
        assert confine_listeners("127.0.0.1") == 0
        socket.create_connection(own.getsockname(), 5).close()


@FILTERS
def test_a_listener_for_ipv6_too_is_confined():
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as everywhere:
        port = everywhere.getsockname()[1]
        assert confine_listeners("127.0.0.1") >= 1
        socket.create_connection(("127.0.0.1", port), 5).close()
        with pytest.raises(TimeoutError):
            socket.create_connection(("::1", port), 0.2)


def test_where_filters_need_a_privilege_loopback_is_confined_by_its_device(monkeypatch: pytest.MonkeyPatch):
    def denied(one: socket.socket, address: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(listeners, "_filter", denied)
    with socket.create_server(("", 0)) as server:
        assert confine_listeners("127.0.0.1") >= 1
        assert server.getsockopt(socket.SOL_SOCKET, listeners._SO_BINDTODEVICE, 16).rstrip(b"\0") == b"lo"
        with socket.create_connection(("127.0.0.1", server.getsockname()[1]), 5):
            pass
        with pytest.raises(PermissionError):
            confine_listeners("192.0.2.1")
