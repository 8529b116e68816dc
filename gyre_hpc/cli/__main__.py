"""`python -m gyre_hpc.cli`: the console command by the interpreter's name, where `gyre` is on no PATH."""

from gyre_hpc.cli import main

main()
