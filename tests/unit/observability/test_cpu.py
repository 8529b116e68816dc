"""CPU seconds are those of this process and of the children it waited for; those of other processes are what they see themselves."""

import os
import subprocess
import sys

from gyre_hpc.observability.cpu import CpuShares, cpu_seconds, cpu_seconds_of


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


def test_shares_of_a_process_are_even_at_each_time_and_add_up_to_what_it_used():
    used = [3.0]
    shares = CpuShares(lambda: used[0])
    shares.enter("first")
    used[0] = 4.0
    shares.enter("second")
    used[0] = 6.0
    assert (shares.of("first"), shares.of("second")) == (5.0, 1.0)
    shares.leave("first")
    used[0] = 7.0
    assert shares.of("second") == 2.0
    shares.leave("second")
    used[0] = 8.0
    shares.enter("third")
    assert shares.of("third") == 1.0, "what was used while nobody was there"
