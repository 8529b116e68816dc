"""House rules that no linter knows; run by `make check` as `python tests/house/rules.py`. With --fix (`make format`) the list of
packages in setup.cfg is written anew first.

- no file or folder is named utils, helpers, common or misc;
- no Python file is longer than 300 lines, launch.py than 15, a starter in launchers/ than 20;
- waiting is done in gyre_hpc/shell/timers.py alone: DESIGN §3 lets shells only translate;
- setup.cfg names every package, so that the wheel holds what the tree holds.
"""

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc"}
MAX_LINES = 300
TREES = ("gyre_hpc", "conf", "tests", "benchmarks", "launchers", "slurm", "docs")
WAITS = {
    "asyncio": {"sleep", "wait_for", "timeout", "timeout_at"},
    "time": {"sleep"},
    "threading": {"Timer"},
}
LOOP_WAITS = {"call_later", "call_at"}
MAY_WAIT = {
    "gyre_hpc/shell/timers.py": "carries out SetTimer: the one place that waits",
    "gyre_hpc/harnesses/program": "programs of their own inside the sandbox; like any harness they know nothing of the run",
    "gyre_hpc/report/watch": "commands of people look at a run's files at an interval until a deadline; outside the run too",
    "gyre_hpc/report/view.py": "a terminal view of files redraws at an interval; it is outside the run and decides nothing",
}


def main(root: Path) -> int:
    """Print every breach below `root`; return 1 if there is one."""
    breaches = [*names(root), *lengths(root), *waits(root), *packages(root)]
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


def files(root: Path) -> Iterator[Path]:
    """Files of the project, relative to `root`, without build products."""
    for path in sorted(root.glob("*.py")):
        yield path.relative_to(root)
    for tree in TREES:
        for path in sorted((root / tree).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root)


def names(root: Path) -> Iterator[str]:
    """Files and folders whose name says nothing about their job."""
    for path in files(root):
        for part in (*path.parts[:-1], path.stem):
            if part.lower() in FORBIDDEN_NAMES:
                yield f"{path}: `{part}` is no name for a job; name the file after what it does"


def lengths(root: Path) -> Iterator[str]:
    """Files that do more than one job."""
    for path in files(root):
        limit = {"launch.py": 15}.get(str(path), 20 if path.parts[0] == "launchers" and path.suffix != ".md" else MAX_LINES)
        if path.suffix not in {".py", ".sh"} and path.parts[0] != "launchers":
            continue
        num_lines = len((root / path).read_text(encoding="utf-8").splitlines())
        if num_lines > limit:
            yield f"{path}: {num_lines} lines, {limit} allowed; give the file one job and move the rest"


def waits(root: Path) -> Iterator[str]:
    """Sleeps and timeouts outside the file that carries out SetTimer."""
    for path in files(root):
        if path.parts[0] != "gyre_hpc" or path.suffix != ".py":
            continue
        if any(path.as_posix().startswith(place) for place in MAY_WAIT):
            continue
        for line, what in waits_in((root / path).read_text(encoding="utf-8")):
            yield f"{path}:{line}: {what} waits; ask for a SetTimer effect (gyre_hpc/shell/timers.py), or hand a deadline to the library"


def waits_in(source: str) -> Iterator[tuple[int, str]]:
    """(line, name) of everything in `source` that waits by itself."""
    tree = ast.parse(source)
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update({alias.asname or alias.name: alias.name for alias in node.names if alias.name in WAITS})
        elif isinstance(node, ast.ImportFrom) and node.module in WAITS:
            for alias in node.names:
                if alias.name in WAITS[node.module]:
                    yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        if isinstance(node.value, ast.Name) and node.attr in WAITS.get(modules.get(node.value.id, ""), ()):
            yield node.lineno, f"{modules[node.value.id]}.{node.attr}"
        elif node.attr in LOOP_WAITS:
            yield node.lineno, node.attr


def packages(root: Path) -> Iterator[str]:
    """Packages of the tree that setup.cfg does not name, and the other way round."""
    parser = configparser.ConfigParser()
    parser.read(root / "setup.cfg", encoding="utf-8")
    listed, found = set(parser.get("options", "packages", fallback="").split()), packages_of(root)
    for name in sorted(found - listed):
        yield f"setup.cfg: packages lacks {name}; run make format"
    for name in sorted(listed - found):
        yield f"setup.cfg: packages names {name}, which has no Python file in the tree; run make format"


def packages_of(root: Path) -> set[str]:
    """Folders with Python files, as package names."""
    return {".".join(path.parent.relative_to(root).parts) for path in (root / "gyre_hpc").rglob("*.py")} | {"gyre_hpc.conf"}


def list_packages(root: Path) -> None:
    """Write the list of packages in setup.cfg anew."""
    path = root / "setup.cfg"
    lines = "".join(f"    {name}\n" for name in sorted(packages_of(root)))
    path.write_text(
        re.sub(r"(?m)^packages =\n(?: .*\n)*", lambda _: f"packages =\n{lines}", path.read_text(encoding="utf-8")), encoding="utf-8"
    )


if __name__ == "__main__":
    here = Path(__file__).resolve().parents[2]
    if "--fix" in sys.argv[1:]:
        list_packages(here)
    sys.exit(main(here))
