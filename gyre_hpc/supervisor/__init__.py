"""Supervisor: the shell of the supervision machine. Starts, signals and buries the processes of one node; no torch."""
