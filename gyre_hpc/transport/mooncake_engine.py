"""The one file that speaks to mooncake-transfer-engine: registered memory, and reads of a peer's.

What it does on its own (0.3.13): listens on two ports of every interface, here confined to ours; knows no token, so that whoever
reaches them reads and writes registered memory (docs/security.md); writes its errors to stderr; gives up on a silent peer only after
PATIENCE_S, in the first handshake after a minute. To end it takes most of a second and leaves threads behind, so a process starts it once and keeps it; with nothing
registered it gives nothing away.
"""

import os
import threading
from collections.abc import Sequence

from gyre_hpc.errors import TransferFailed, UserError
from gyre_hpc.ports import allowed
from gyre_hpc.transport.listeners import confine_listeners
from gyre_hpc.transport.mooncake_needs import check_mooncake

PATIENCE_S = 10
MAX_RUNS = 512
"""Reads at once: its queue for one peer is finite, and what does not fit fails the whole."""


class MooncakeEngine:
    """`protocol`: tcp or rdma; `device`: RDMA devices, comma-separated, empty: it looks for them."""

    def __init__(self, host: str, protocol: str, device: str) -> None:
        check_mooncake(protocol)
        _settle(host, protocol)
        try:
            from mooncake.engine import TransferEngine
        except ImportError as error:
            raise UserError("transport.kv", "mooncake", f"its library cannot be loaded ({error}); install what it names") from error
        self._engine = TransferEngine()
        if code := self._engine.initialize(host, "P2PHANDSHAKE", protocol, device):
            remedy = f"mooncake could not start over it on {host} (code {code}); its reason is on stderr"
            raise UserError("transport.kv_protocol", protocol, remedy)
        self.session = f"{host}:{self._engine.get_rpc_port()}"
        """How peers name this process."""
        try:
            confine_listeners(host)
        except PermissionError as error:
            remedy = f"it listens on every interface, and this kernel lets no ordinary process confine it to {host} ({error}); use tcp"
            raise UserError("transport.kv", "mooncake", remedy) from error

    def register(self, address: int, size: int) -> None:
        """Peers may read [address, address + size) from now on, and it may be read into. Raises TransferFailed."""
        if code := self._engine.register_memory(address, size):
            raise TransferFailed(f"mooncake could not register {size} bytes (code {code})")

    def unregister(self, address: int) -> None:
        self._engine.unregister_memory(address)

    def read(self, session: str, runs: Sequence[tuple[int, int, int]]) -> None:
        """Each run: (address here, address there, bytes), MAX_RUNS at most. Blocks for as long as said above on a silent peer. Raises
        TransferFailed."""
        here, there, sizes = (list(column) for column in zip(*runs, strict=True))
        if code := self._engine.batch_transfer_sync_read(session, here, there, sizes):
            raise TransferFailed(f"mooncake could not read from {session} (code {code})")


_LOCK = threading.Lock()
_ENGINES: dict[tuple[str, str, str], MooncakeEngine] = {}


def engine_of_process(host: str, protocol: str, device: str) -> MooncakeEngine:
    """Started at the first call. Raises UserError."""
    with _LOCK:
        found = _ENGINES.get((host, protocol, device))
        if found is None:
            found = _ENGINES[host, protocol, device] = MooncakeEngine(host, protocol, device)
        return found


def _settle(host: str, protocol: str) -> None:
    """It takes these from the environment alone, once. What a person has set stays."""
    settings = {
        "MC_TCP_BIND_ADDRESS": host,
        "MC_RDMA_BIND_ADDRESS": host,
        "MC_LOG_LEVEL": "ERROR",
        "MC_TCP_PROGRESS_TIMEOUT_SEC": str(PATIENCE_S),
        "MC_TCP_STATUS_TIMEOUT_SEC": str(PATIENCE_S),
        "MC_TRANSFER_TIMEOUT": str(PATIENCE_S),
    }
    if protocol == "tcp":
        settings["MC_FORCE_TCP"] = "1"
    if (ports := allowed()) is not None:
        settings |= {"MC_MIN_PRC_PORT": str(ports[0]), "MC_MAX_PRC_PORT": str(ports[1])}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
