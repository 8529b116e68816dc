"""What all tests share: one thread per process, and a word for parts that a machine may lack."""

import os
import signal
from collections.abc import Callable

import pytest
from hypothesis import settings

from tests.fakes.required import need

if os.environ.get("GYRE_REQUIRE"):
    # Where a verdict is given, it is the same each time; new examples are found where people work.
    settings.register_profile("verdict", derandomize=True)
    settings.load_profile("verdict")

# Before anything imports torch: the tests' processes share few cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background makes them deaf to Ctrl-C, and every program that they start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def needs() -> Callable[[str, str], None]:
    """`needs("bwrap", problem)`: skip the test when `problem` is not empty. With GYRE_REQUIRE=all, or naming the part, it fails instead:
    where everything is meant to be there, nothing is skipped silently."""

    return need
