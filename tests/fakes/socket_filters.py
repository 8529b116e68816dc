"""Does this kernel let us filter a socket? Some keep that for privileged processes."""

import socket

from gyre_hpc.transport import listeners


def may_filter() -> bool:
    with socket.create_server(("127.0.0.1", 0)) as one:
        try:
            listeners._filter(one, "127.0.0.1")
        except PermissionError:
            return False
        return True
