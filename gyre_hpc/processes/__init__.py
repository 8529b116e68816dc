"""One file per process main: `python -m gyre_hpc.processes.X`. Mains assemble; they decide nothing."""
