"""A copy of the package with one patch in it: bugs that are kept as patches, to see that something finds them."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


class PatchFailed(ValueError):
    """The patch does not fit the sources any more."""


def patched_copy(patch: Path, to: Path) -> Path:
    """The package below `to`, patched. Returns `to`, which goes into PYTHONPATH. Raises PatchFailed naming the patch."""
    path, old, new = read_patch(patch)
    shutil.copytree(ROOT / "gyre_hpc", to / "gyre_hpc", ignore=shutil.ignore_patterns("__pycache__"))
    target = to / path
    text = target.read_text()
    if text.count(old) != 1:
        raise PatchFailed(f"{patch.name}: its lines are {text.count(old)} times in {path}; make the patch anew")
    target.write_text(text.replace(old, new))
    return to


def read_patch(patch: Path) -> tuple[str, str, str]:
    """(path, text before, text after) of a unified diff of one file and one hunk that changes one line."""
    header, _, body = patch.read_text().partition("\n@@")
    names = [line.split(" ", 1)[1].partition("/")[2] for line in header.splitlines() if line.startswith(("--- ", "+++ "))]
    lines = body.splitlines()[1:]
    removed, added = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    if len(names) != 2 or names[0] != names[1] or any(line.startswith("@@") for line in lines) or max(removed, added) != 1:
        raise PatchFailed(f"{patch.name}: not one line of one file")
    old = "".join(f"{line[1:]}\n" for line in lines if line[:1] in (" ", "-"))
    new = "".join(f"{line[1:]}\n" for line in lines if line[:1] in (" ", "+"))
    return names[0], old, new
