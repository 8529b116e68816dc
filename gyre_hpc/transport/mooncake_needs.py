"""Is mooncake usable here: asked at the door of a launch, and where it is opened. Imports nothing of it."""

import ctypes
import importlib.util
import sys
from pathlib import Path

from gyre_hpc.errors import UserError

WHEEL = "mooncake-transfer-engine"
VERSION = "0.3.13.post1"


RDMA_DEVICES = Path("/sys/class/infiniband")


def check_mooncake(protocol: str = "tcp") -> None:
    """Raises UserError with the remedy for the first thing that is missing. protocol: tcp or rdma."""
    if not sys.platform.startswith("linux"):
        raise UserError("transport.kv", "mooncake", "it exists for Linux only; use c10d")
    if importlib.util.find_spec("mooncake") is None:
        raise UserError(
            "transport.kv", "mooncake", f"its wheel is missing: pip install {WHEEL}=={VERSION} ({WHEEL}-non-cuda without GPUs), or use c10d"
        )
    try:
        ctypes.CDLL("libibverbs.so.1")
    except OSError as error:
        remedy = "it links libibverbs, over TCP too, which is missing: apt-get install libibverbs1 (dnf install libibverbs), or use c10d"
        raise UserError("transport.kv", "mooncake", remedy) from error
    if protocol == "rdma" and not (RDMA_DEVICES.is_dir() and any(RDMA_DEVICES.iterdir())):
        # Without a device it would go on over TCP and say nothing.
        raise UserError("transport.kv_protocol", protocol, f"there is no RDMA device here ({RDMA_DEVICES}); use tcp")
