"""Makes SGLang's environment in the cache, when a person asks for it, and tells what is there.

Invariants: an environment is in its folder as a whole or not at all (made aside, stamped last, renamed), and the one before stays
until then; two installs of the same one follow each other; an interrupted or failed one leaves nothing behind, a killed one is
swept by the next. Its programs name the folder where it stands, not the one it was made in.
"""

import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gyre_hpc.clock import monotonic_s
from gyre_hpc.config.engine_schema import Device
from gyre_hpc.engines.sglang import environment
from gyre_hpc.errors import UserError
from gyre_hpc.launch.fetching import Reasons, Say, alone, disk_bytes, made_aside, remedy, run_to_end
from gyre_hpc.runner.workspaces import remove_tree

_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
_INSTALL = ("install", "--progress-bar=off", "--no-compile")
_USABLE = f"import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != {environment.PYTHON})"
_ASK_DEADLINE_S = 60.0
_SHOWN_LINES = 20
_NO_TORCH = (
    "pip sees no such build of torch; name an index or a folder that has torch's CPU builds, e.g. PIP_EXTRA_INDEX_URL=URL or "
    "PIP_FIND_LINKS=FOLDER, and run it again"
)
_REASONS: Reasons = ((r"no matching distribution found for torch", _NO_TORCH),)


@dataclass(frozen=True, slots=True)
class _Step:
    """One program on the way to an environment."""

    what: str
    argv: tuple[str, ...]
    must_succeed: bool = True


def install(device: Device, cache: Path, say: Say) -> Path:
    """Make it unless it is there; return its folder. `device` auto: as find() would choose. pip is told $PIP_ARGS too.

    Raises UserError, OSError.
    """
    device = environment.choose_device(device)
    folder = environment.folder_of(cache, device)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder, say) as lock:
        if environment.is_complete(folder, device):
            say(f"sglang {environment.VERSION} for {device.value} is installed in {folder}")
            _say_what_for(device, say)
            return folder
        _check_room(folder.parent, device)
        started = monotonic_s()
        python = _interpreter()
        say(f"sglang {environment.VERSION} for {device.value}: licence Apache-2.0, {_size(device)}, with {python}")
        with made_aside(folder) as aside:
            for step in _steps(python, aside, device):
                say(f"{monotonic_s() - started:4.0f} s  {step.what}")
                _carry_out(step, lock, _environ(aside), say)
            _must_hold(aside, device)
            remove_tree(_temporary(aside))
            _name_anew(aside, folder)
            (aside / environment.STAMP).write_text(environment.pins(device), encoding="utf-8")
            _put(aside, folder)
        say(f"{monotonic_s() - started:4.0f} s  installed in {folder}, {disk_bytes(folder) / 1e6:.0f} MB")
        _say_what_for(device, say)
    return folder


def _say_what_for(device: Device, say: Say) -> None:
    if device is Device.cpu:
        say("without a GPU it serves tests and trials alone, started by engine.sglang.launcher=tests/sglang/launch_without_gpu.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Installation:
    """An environment that is there, or that could be."""

    version: str
    device: str
    state: str
    """yes, no, outdated (made from other pins than those of this gyre_hpc), unused (of another version)."""
    size: str
    folder: Path


def installations(cache: Path) -> list[Installation]:
    """Those that this gyre_hpc can use, then what is left of others."""
    ours = {environment.folder_of(cache, device): device for device in (Device.cpu, Device.cuda)}
    parent = next(iter(ours)).parent
    found = sorted(path for path in parent.glob("[!.]*-*") if path.is_dir()) if parent.is_dir() else []
    return [_told(folder, ours.get(folder)) for folder in (*ours, *(path for path in found if path not in ours))]


def _told(folder: Path, device: Device | None) -> Installation:
    version, _, name = folder.name.rpartition("-")
    if device is None:
        state = "unused"
    elif environment.is_complete(folder, device):
        state = "yes"
    else:
        state = "outdated" if folder.exists() else "no"
    size = f"{disk_bytes(folder) / 1e6:.0f} MB" if folder.exists() else _size(device)
    return Installation(version=version, device=name, state=state, size=size, folder=folder)


def _size(device: Device | None) -> str:
    known = environment.MEGABYTES.get(device) if device else None
    return f"~{known} MB" if known else "never measured"


def _check_room(above: Path, device: Device) -> None:
    """Now, not after minutes of fetching. Raises OSError."""
    free, wanted = shutil.disk_usage(above).free, environment.MEGABYTES.get(device, 0)
    if free < wanted * 1e6:
        raise OSError(errno.ENOSPC, f"about {wanted} MB are needed, {free / 1e6:.0f} MB are free", str(above))


def _interpreter() -> Path:
    """$PYTHON, the one below the environment we may run in (the new one must outlive it), or python3.11 of PATH. Raises UserError."""
    version = ".".join(map(str, environment.PYTHON))
    own = Path(sys.base_prefix).resolve() / "bin" / f"python{version}"
    for candidate in (os.environ.get("PYTHON"), str(own), f"python{version}"):
        found = shutil.which(candidate) if candidate else None
        if found and _answers(found):
            return Path(found)
    here = ".".join(map(str, sys.version_info[:2]))
    how = f"install python{version} with venv (apt install python{version}-venv, conda create -n py python={version}) or name it in PYTHON"
    raise UserError(
        "python",
        here,
        f"the pins of sglang {environment.VERSION} are for Python {version}, and none that can make environments is on PATH; {how}",
    )


def _answers(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", _USABLE], capture_output=True, check=False, timeout=_ASK_DEADLINE_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _steps(python: Path, aside: Path, device: Device) -> Iterator[_Step]:
    inner = str(environment.python_of(aside))
    more = shlex.split(os.environ.get("PIP_ARGS", ""))
    pins, names = aside / "tmp" / "pins.txt", environment.pinned(device)
    yield _Step("making the environment", (str(python), "-m", "venv", "--prompt", "sglang", str(aside)))
    _temporary(aside).mkdir()
    pins.write_text(environment.pins(device), encoding="utf-8")
    alone_first = [name for name in names if name.startswith("torch==")]
    if device is Device.cpu:
        # First and by itself: the one that most often cannot be had, and it says so before 140 others are fetched.
        yield _Step(f"fetching {alone_first[0]}", (inner, *_PIP, *_INSTALL, "--no-deps", *more, *alone_first))
        yield _Step(f"fetching {len(names) - 1} more packages", (inner, *_PIP, *_INSTALL, "--no-deps", *more, "-r", str(pins)))
    else:
        yield _Step(f"fetching {', '.join(names)} and what they need", (inner, *_PIP, *_INSTALL, *more, "-r", str(pins)))
    # On all cores, where pip would take one; whoever uses the cache later may not be able to write there. Some packages hold files
    # that no Python can compile.
    compile_all = (inner, "-m", "compileall", "-q", "-j", "0", "-x", "/(tests?|modelscope)/", str(aside / "lib"))
    yield _Step("compiling", compile_all, must_succeed=False)


def _carry_out(step: _Step, lock: int, environ: Mapping[str, str], say: Say) -> None:
    code, lines = run_to_end(list(step.argv), lock, environ)
    if code == 0 or not step.must_succeed:
        return
    for line in lines[-_SHOWN_LINES:]:
        say(f"        {line}")
    raise UserError("engine", "sglang", remedy("pip" if "pip" in step.argv else "venv", code, lines, _REASONS))


def _environ(aside: Path) -> dict[str, str]:
    """Ours without what would lead another Python astray; large temporary files lie beside the result, and are swept with it."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return ours | {"TMPDIR": str(_temporary(aside))} if _temporary(aside).exists() else ours


def _temporary(aside: Path) -> Path:
    return aside / "tmp"


def _must_hold(aside: Path, device: Device) -> None:
    """Every pin is what is there. Raises UserError."""
    argv = [str(environment.python_of(aside)), *_PIP, "freeze", "--all"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, env=_environ(aside)).stdout
    there = set(map(_plain, said.splitlines()))
    lacking = [name for name in environment.pinned(device) if _plain(name) not in there]
    if lacking:
        raise UserError(
            "engine",
            "sglang",
            f"pip ended well but did not install {', '.join(lacking[:5])}; is $PIP_ARGS or pip's configuration in the way?",
        )


def _plain(pin: str) -> str:
    """Names are equal up to case and these three characters."""
    name, _, version = pin.partition("==")
    return f"{re.sub('[-_.]+', '-', name).lower()}=={version}"


def _name_anew(aside: Path, folder: Path) -> None:
    """Programs of the environment, and scripts that enter it, name the folder they were made in; links to the cache may go."""
    was, will_be = os.fsencode(aside), os.fsencode(folder.parent.resolve() / folder.name)
    for path in (aside / "pyvenv.cfg", *(aside / "bin").iterdir()):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if was in content and b"\0" not in content:
            path.write_bytes(content.replace(was, will_be))


def _put(aside: Path, folder: Path) -> None:
    """Under its name. What stood there goes last, under a name that the next install would sweep."""
    before = aside.with_name(f"{aside.name}.before")
    if folder.exists():
        folder.rename(before)
    aside.rename(folder)
    if before.exists():
        remove_tree(before)
