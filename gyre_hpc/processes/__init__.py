"""One file per process main: `python -m gyre_hpc.processes.NAME`. Parse, build, run; no decisions."""
