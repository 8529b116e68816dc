"""CPU seconds are those of this process and of the children it waited for."""

import subprocess
import sys

from gyre_hpc.observability.cpu import cpu_seconds


def test_a_childs_work_counts_once_it_has_ended():
    own, children = cpu_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(2_000_000))"], check=True, timeout=60)
    own_after, children_after = cpu_seconds()
    assert children_after > children
    assert own_after >= own > 0
