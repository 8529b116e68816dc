"""Who belongs to a run: also a program without a mark whose parent is gone."""

import os
import subprocess

from benchmarks.chaos.family import Family
from tests.fakes.live_run import wait_dead, wait_for


def test_an_orphan_without_a_mark_is_known_and_ended():
    family = Family()
    with subprocess.Popen(
        ["sh", "-c", "env -i sleep 600 & read x"], stdin=subprocess.PIPE, env={**os.environ, **family.environment}
    ) as parent:
        assert parent.stdin is not None
        # `env` becomes `sleep`; before that it has the mark itself.
        wait_for(lambda: any(is_sleep(pid) for pid in family.look()), "sleep runs")
        parent.stdin.close()
        assert parent.wait() is not None
    (orphan,) = family.look()
    assert is_sleep(orphan)
    family.end()
    wait_dead({orphan})
    assert not family.look()


def test_nobody_else_belongs_to_it():
    assert Family().look() == set()


def is_sleep(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[0] == b"sleep"
    except OSError:
        return False
