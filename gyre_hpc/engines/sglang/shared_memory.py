"""Shared memory that a server leaves in /dev/shm: SGLang does not remove it even at an orderly end, and it stays until the machine is
started anew, or full.

Only what processes of the server have mapped, and only under names that are not for sharing: storage that servers share may lie there too.
"""

import os
import re
from collections.abc import Iterable

OWN_NAMES = ("sglang_loads_", "sglang_host_pool_", "sgl_shm_", "multi_tokenizer_args_", "nccl-", "cuda.shm.")
_MAPPED = re.compile(rb" (/dev/shm/[^\n]*)\n")
_GONE = b" (deleted)"


def mapped(pids: Iterable[int]) -> set[str]:
    """Paths of a server's own shared memory that these processes have mapped."""
    found: set[str] = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                paths = set(_MAPPED.findall(file.read()))
        except OSError:
            continue
        found |= {os.fsdecode(path) for path in paths if not path.endswith(_GONE)}
    return {path for path in found if os.path.basename(path).startswith(OWN_NAMES)}


def remove(paths: Iterable[str]) -> None:
    """Once nobody maps them any more."""
    for path in paths:
        try:
            os.unlink(path)
        except OSError:
            continue
