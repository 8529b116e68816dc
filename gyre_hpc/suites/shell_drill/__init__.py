"""shell_drill: the suite, its scripted agents and the measure of how far one gets without reading."""

from gyre_hpc.suites.shell_drill.blind import blind_pass_rate
from gyre_hpc.suites.shell_drill.scripted import scripted_answer
from gyre_hpc.suites.shell_drill.suite import ShellDrill

__all__ = ["ShellDrill", "blind_pass_rate", "scripted_answer"]
