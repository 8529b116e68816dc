"""Gives an order to a live run and waits for the answer: by HTTP where supervisor-0 can be reached, else by a file of commands/.

The answer is a file either way. An order that nobody answers stays: it is carried out if that attempt comes back to life.
"""

import getpass
import secrets
import socket
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gyre_hpc.clock import monotonic_s, unix_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.protocol.envelope import Envelope, encode
from gyre_hpc.protocol.people import Answer, Command, Wish
from gyre_hpc.report.watch.signs import DIRECT, Signs
from gyre_hpc.whole_file import write_whole

ANSWER_S = 30.0
_REACH_S = 3.0
_LOOK_EVERY_S = 0.1
_OWN = "gyre"
"""Sender of messages that are no process's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """An order that is on its way."""

    id: str
    how: str
    """For people: the way that it took."""


def give(folder: RunFolder, wish: Wish, *, signs: Signs, token: str) -> Given:
    """Raises UserError when it can take neither way."""
    command = Command(f"{int(unix_s() * 1000)}-{secrets.token_hex(4)}", wish)
    url = signs.start.url if signs.start is not None else ""
    if url and token and _post(url, Envelope(_OWN, signs.attempt, command), token):
        return Given(id=command.id, how=f"told supervisor-0 at {url}")
    try:
        folder.commands.mkdir(mode=0o700, exist_ok=True)
        write_whole(folder.command(command.id), msgspec.json.encode(wish), mode=0o600)
    except OSError as error:
        remedy = f"its supervisor cannot be reached from here, and the folder takes no file ({error}); make room, or end its job"
        raise UserError("RUN", str(folder.root), remedy) from error
    return Given(id=command.id, how=f"wrote {_below(folder, folder.command(command.id))}; its supervisor looks there every 2 s")


def answer_to(folder: RunFolder, given: Given, within_s: float = ANSWER_S) -> Answer | None:
    """None: nobody answered in time."""
    limit = monotonic_s() + within_s
    while True:
        try:
            return msgspec.json.decode(folder.answer(given.id).read_bytes(), type=Answer)
        except FileNotFoundError:
            if monotonic_s() >= limit:
                return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UserError("RUN", str(folder.root), f"the answer {given.id} cannot be read ({error})") from error
        time.sleep(_LOOK_EVERY_S)


def who() -> str:
    """For reasons."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container without that user
        name = "somebody"
    return f"{name}@{socket.gethostname()}"


def _post(url: str, envelope: Envelope, token: str) -> bool:
    """True: it was taken."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/messages", data=encode(envelope), headers=headers)
    try:
        with DIRECT.open(request, timeout=_REACH_S) as response:
            return bool(response.status == 204)
    except (OSError, ValueError):  # URLError, HTTPError and timeouts are OSErrors
        return False


def _below(folder: RunFolder, path: Path) -> str:
    return str(path.relative_to(folder.root))
