import socket

import pytest

from gyre_hpc.transport.listeners import confine_listeners


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


def test_a_listener_for_ipv6_too_is_confined():
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as everywhere:
        port = everywhere.getsockname()[1]
        assert confine_listeners("127.0.0.1") >= 1
        socket.create_connection(("127.0.0.1", port), 5).close()
        with pytest.raises(TimeoutError):
            socket.create_connection(("::1", port), 0.2)
