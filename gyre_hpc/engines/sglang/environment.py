"""SGLang's Python environment: where it is, what it is made of, whether it is there. Made by launch/engine_install.py.

Invariants: an environment is there when its stamp equals the pins of this gyre_hpc; the stamp is written last, inside a folder
that is renamed to its name as a whole. No torch here: launch and the command line read this.
"""

import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path

from gyre_hpc.config.engine_schema import Device, SGLangConfig
from gyre_hpc.errors import UserError

VERSION = "0.5.23"
PYTHON = (3, 11)
"""What the pins are for."""
STAMP = "gyre-pins.txt"
MEGABYTES = {Device.cpu: 3300}
"""Disk it takes, about. cuda: never measured."""
_ASK_DEADLINE_S = 20.0
_ASK_VERSION = """
import importlib.util as util
from importlib import metadata
try:
    print(metadata.version("sglang") if util.find_spec("sglang") else "")
except metadata.PackageNotFoundError:
    print("unknown")
"""


def folder_of(cache: Path, device: Device) -> Path:
    """Below paths.cache, shared by runs. `device`: not auto."""
    assert device is not Device.auto
    return cache / "engines" / "sglang" / f"{VERSION}-{device.value}"


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def pins(device: Device) -> str:
    """A requirements file for pip."""
    return (resources.files("gyre_hpc.engines.sglang") / "pins" / f"{device.value}.txt").read_text(encoding="utf-8")


def pinned(device: Device) -> tuple[str, ...]:
    """name==version of every package in it."""
    return tuple(line for line in pins(device).splitlines() if line and not line.startswith("#"))


def is_complete(folder: Path, device: Device) -> bool:
    """Whether it stands there, made from the very pins of this gyre_hpc."""
    try:
        return (folder / STAMP).read_text(encoding="utf-8") == pins(device) and os.access(python_of(folder), os.X_OK)
    except OSError:
        return False


def find(config: SGLangConfig, cache: Path, device: Device) -> Path:
    """The interpreter that starts SGLang. Raises UserError when there is none."""
    if config.environment:
        python = python_of(Path(config.environment).expanduser().resolve())
        if not os.access(python, os.X_OK):
            raise UserError(
                "engine.sglang.environment", config.environment, "it holds no bin/python; name the folder of a Python environment"
            )
        return python
    device = choose_device(device)
    folder = folder_of(cache, device)
    if is_complete(folder, device):
        return python_of(folder)
    what = f"its environment in {folder} is that of another gyre_hpc" if folder.exists() else f"there is no environment for it in {folder}"
    raise UserError("engine", "sglang", f"{what}; run: gyre engine install sglang --device {device.value} --cache {cache}")


def version_in(python: Path) -> str:
    """Of the SGLang that this interpreter would import; "unknown" where it does not declare one, empty where there is none. Asked of the
    interpreter itself: only it knows its paths. Raises UserError when it cannot be asked."""
    # As a server sees it: not through our own paths, nor where we stand.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ask, deadline_s = [str(python), "-c", _ASK_VERSION], _ASK_DEADLINE_S
    try:
        asked = subprocess.run(ask, capture_output=True, text=True, check=True, cwd="/", env=environ, timeout=deadline_s)
    except (OSError, subprocess.SubprocessError) as error:
        words = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise UserError("engine.sglang.environment", str(python.parents[1]), f"its bin/python does not work ({words[-1]})") from error
    return asked.stdout.strip()


def choose_device(device: Device) -> Device:
    """auto: cuda where an NVIDIA GPU is to be seen (and CUDA_VISIBLE_DEVICES does not hide all), else cpu."""
    if device is not Device.auto:
        return device
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return Device.cpu
    return Device.cuda if sees_gpu() else Device.cpu


def sees_gpu(root: Path = Path("/")) -> bool:
    """Whether this machine shows an NVIDIA GPU, without loading torch. root: of the file system."""
    if any((root / "dev").glob("nvidia[0-9]*")) or any((root / "proc/driver/nvidia/gpus").glob("*")):
        return True
    # Where the driver is another system's (WSL), only its program knows.
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        done = subprocess.run([program, "-L"], capture_output=True, text=True, check=False, timeout=_ASK_DEADLINE_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and "GPU " in done.stdout
