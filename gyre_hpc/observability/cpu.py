"""CPU seconds of this process, for `cpu` events and reports."""

import resource


def cpu_seconds() -> tuple[float, float]:
    """(of this process, of its children that ended and were waited for), user and system together."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime
