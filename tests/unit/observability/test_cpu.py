"""CPU seconds are those of this process and of the children it waited for; those of other processes are what they see themselves."""

import os
import subprocess
import sys

from gyre_hpc.observability.cpu import cpu_seconds, cpu_seconds_of


def test_a_childs_work_counts_once_it_has_ended():
    own, children = cpu_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(2_000_000))"], check=True, timeout=60)
    own_after, children_after = cpu_seconds()
    assert children_after > children
    assert own_after >= own > 0


def test_what_others_see_of_a_process_is_what_it_sees_of_itself():
    before = sum(cpu_seconds())
    seen = cpu_seconds_of([os.getpid()])
    assert before - 0.5 <= seen <= sum(cpu_seconds()) + 0.5


def test_a_process_that_is_gone_counts_nothing():
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    assert cpu_seconds_of([gone.pid]) == cpu_seconds_of([]) == 0
