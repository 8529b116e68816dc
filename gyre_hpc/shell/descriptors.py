"""How many sockets and files a process may have open: as many as the machine lets it. The usual soft limit is 1024."""

import contextlib
import resource

_MOST = 1 << 16
"""Some systems call their limit infinite and refuse to set it."""


def raise_descriptor_limit() -> int:
    """Returns the limit in force; where it cannot be raised, that is the old one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if wanted > soft:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
