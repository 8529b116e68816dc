"""What lies in the folder of a server (parts.Launch.folder), beside its log."""

import shutil
from pathlib import Path
from typing import Any

import msgspec

from gyre_hpc.whole_file import write_whole


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """What a leader has noted of its server, for the next one."""

    nonce: str
    """Of the start it was said about."""
    state: str
    """asleep, awake or changing."""


def socket_file(folder: Path) -> Path:
    """Of its keeper."""
    return folder / "keeper.sock"


def start_file(folder: Path) -> Path:
    """Port and key, for SGLang's --config: a command line is for all users of the machine to read. Gone once the server answers."""
    return folder / "start.yaml"


def start_flags(port: int, key: str) -> dict[str, Any]:
    """Content of `start_file`, as JSON, which is YAML."""
    return {"port": port, "api-key": key}


def log_file(folder: Path) -> Path:
    return folder / "server.log"


def write_noted(folder: Path, noted: Noted) -> None:
    write_whole(_state_file(folder), msgspec.json.encode(noted))


def read_noted(folder: Path) -> Noted | None:
    """None: nothing was noted, or nothing readable."""
    try:
        return msgspec.json.decode(_state_file(folder).read_bytes(), type=Noted)
    except (OSError, msgspec.DecodeError):
        return None


def prepare(folder: Path) -> None:
    """Nothing of an earlier server but its log, and a place for temporary files."""
    clear(folder)
    (folder / "tmp").mkdir(mode=0o700)


def clear(folder: Path) -> None:
    """Take away all but the log."""
    for path in (socket_file(folder), start_file(folder), _state_file(folder)):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder / "tmp", ignore_errors=True)


def _state_file(folder: Path) -> Path:
    return folder / "state.json"
