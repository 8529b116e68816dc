"""SLURM's commands as scripts on PATH that write down what they are told."""

from pathlib import Path

import pytest

RUNNING = "JobId=7 JobState=RUNNING Restarts=0 PreemptTime=None ExitCode=0:0"


class Site:
    """Job 7 runs until it `says` something else."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs, self.orders = root / "bin", root / "orders"
        self.programs.mkdir()
        self.orders.touch()
        self.says(RUNNING)
        self._write("scancel", f'echo "scancel $*" >>{self.orders}')
        monkeypatch.setenv("PATH", f"{self.programs}:/usr/bin:/bin")

    def says(self, job: str, order_fails: bool = False, before: str = "") -> None:
        """before: shell that runs while the question is asked."""
        end = "exit 1" if order_fails else f'echo "scontrol $*" >>{self.orders}'
        self._write("scontrol", f'if [ "$1" = show ]; then {before}\necho "{job}"; else {end}; fi')

    def heard(self) -> list[str]:
        return self.orders.read_text().splitlines()

    def _write(self, name: str, body: str) -> None:
        (self.programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.programs / name).chmod(0o755)
