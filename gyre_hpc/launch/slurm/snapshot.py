"""The code a run runs from: a copy in its run folder, so that edits after the submission change nothing of a run that waits or goes on."""

import shutil
from importlib import resources
from pathlib import Path

import gyre_hpc
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.launch.versions import COMMIT, commit_here

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


def take(folder: RunFolder) -> Path:
    """Copy the package with its configuration groups; return the folder that goes on Python's path. Kept as it is when it is there:
    attempts of one run have one code. Raises OSError."""
    package = folder.code / gyre_hpc.__name__
    if (folder.code / "DONE").exists():
        return folder.code
    shutil.rmtree(folder.code, ignore_errors=True)
    shutil.copytree(Path(gyre_hpc.__path__[0]), package, ignore=_LEFT_OUT)
    if not (package / "conf").exists():  # installed in place it lies elsewhere
        shutil.copytree(Path(str(resources.files("gyre_hpc.conf"))), package / "conf", ignore=_LEFT_OUT)
    (folder.code / COMMIT).write_text(commit_here())
    (folder.code / "DONE").touch()
    return folder.code


def as_it_stands() -> Path:
    """The folder that holds this very package, for developers."""
    return Path(gyre_hpc.__path__[0]).resolve().parent
