"""Chooses the kind of block transport."""

from gyre_hpc.config.schema import TransportConfig
from gyre_hpc.errors import UserError
from gyre_hpc.transport.kv_base import BlockTransport


def create_block_transport(config: TransportConfig, host: str) -> BlockTransport | None:
    """`config.kv`: tcp (every platform), c10d (gloo, nccl), mooncake (one-sided, RDMA), memory (cells of one process), none (None: KV is
    never moved).

    host: address of this process's interface. Raises UserError for a kind that is unknown or not installed.
    """
    if config.kv == "none":
        return None
    if config.kv == "memory":
        from gyre_hpc.transport.kv_memory import MemoryBlocks

        return MemoryBlocks()
    if config.kv == "tcp":
        from gyre_hpc.transport.kv_tcp import TcpBlocks

        return TcpBlocks(host=host)
    if config.kv == "c10d":
        from gyre_hpc.transport.kv_c10d import C10dBlocks

        return C10dBlocks(host=host, backend=config.backend)
    if config.kv == "mooncake":
        from gyre_hpc.transport.kv_mooncake import MooncakeBlocks

        return MooncakeBlocks(host=host, protocol=config.kv_protocol, device=config.kv_device)
    raise UserError("transport.kv", config.kv, "use tcp, c10d, mooncake, memory or none")
