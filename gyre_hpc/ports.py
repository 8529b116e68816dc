"""Listening sockets: a free port of the operating system's choice, or one within `network.port_range`.

The range is a fact about the process's surroundings (a cluster's firewall), so it is told once, at the process's birth, and
holds for every socket the process opens afterwards. A port is never probed: it is bound, and then published.
"""

import errno
import os
import socket

_range: tuple[int, int] | None = None


def restrict(port_range: str) -> None:
    """`LOW-HIGH`, both ends included; empty: any free port. Raises ValueError on anything else."""
    global _range
    low, _, high = port_range.partition("-")
    _range = (int(low), int(high)) if port_range else None


def allowed() -> tuple[int, int] | None:
    """First and last port that may be listened on; None: any. For libraries that open ports of their own."""
    return _range


def listen(host: str, port: int = 0, backlog: int = 128) -> socket.socket:
    """A listening socket on `host`; `port` 0 means any that is allowed. Raises OSError (EADDRINUSE when the range is full)."""
    if port or _range is None:
        return socket.create_server((host, port), backlog=backlog)
    low, high = _range
    size = high - low + 1
    # Processes begin at different places, so that they do not all try the same taken ports.
    start = os.getpid() % size
    for offset in range(size):
        try:
            return socket.create_server((host, low + (start + offset) % size), backlog=backlog)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"no free port in network.port_range={low}-{high} on {host}")
