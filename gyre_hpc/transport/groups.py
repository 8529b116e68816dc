"""Chooses the kind of process groups between cells."""

import importlib.util

from gyre_hpc.config.schema import TransportConfig
from gyre_hpc.errors import UserError
from gyre_hpc.transport.base import Groups


def create_groups(config: TransportConfig, host: str) -> Groups:
    """`config.groups`: c10d (every platform), tcp (timed cells, no torch), memory (timed cells of one process), torchft
    (where its wheel exists).

    host: address of this process's interface. Raises UserError for a kind that is unknown or not installed.
    """
    if config.groups == "c10d":
        from gyre_hpc.transport.c10d_groups import C10dGroups

        return C10dGroups(host=host, backend=config.backend)
    if config.groups == "tcp":
        from gyre_hpc.transport.tcp_groups import TcpGroups

        return TcpGroups(host=host)
    if config.groups == "memory":
        from gyre_hpc.transport.memory_groups import MemoryGroups

        return MemoryGroups()
    if config.groups == "torchft":
        if importlib.util.find_spec("torchft") is None:
            raise UserError("transport.groups", "torchft", "its wheel is missing: pip install torchft-nightly, or use c10d")
        raise UserError("transport.groups", "torchft", "groups over torchft are not part of this version; use c10d")
    raise UserError("transport.groups", config.groups, "use c10d, tcp, memory or torchft")
