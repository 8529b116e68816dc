"""Python imports this at the start of every process that has this folder on its PYTHONPATH: a supervisor's children have logs of LARGEST bytes,
looked at often."""

import sys

LARGEST, LOOK_EVERY_S = 20_000, 0.05

if "gyre_hpc.processes.supervisor" in sys.orig_argv:
    from gyre_hpc.supervisor import log_files

    log_files.LOOK_EVERY_S = LOOK_EVERY_S
    log_files.bound.__defaults__ = log_files.open_log.__defaults__ = (LARGEST,)
