"""The one place that reads time. Everything that decides gets `now` as an argument."""

import time


def monotonic_s() -> float:
    """Seconds on this machine's monotonic clock; comparable across its processes, not across machines."""
    return time.monotonic()


def unix_s() -> float:
    """Seconds since the epoch, for events and records that people read."""
    return time.time()


def thread_cpu_s() -> float:
    """CPU seconds of the calling thread."""
    return time.thread_time()
