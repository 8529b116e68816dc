"""`python -m gyre_hpc.processes.warden FD`: started by the runner, starts its harnesses."""

import socket
import sys

from gyre_hpc.runner.warden.warden import Warden
from gyre_hpc.shell.lifetime import die_with_born_parent

if __name__ == "__main__":
    die_with_born_parent()
    Warden(socket.socket(fileno=int(sys.argv[1]))).serve()
