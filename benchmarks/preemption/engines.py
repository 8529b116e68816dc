"""How many tokens the engines of a run have sampled, whether anybody received them or not: by their own counters.

A living engine is asked (`/server_info`); one whose cell ended in order has noted its last word (`engine_tokens`).
"""

import http.client
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gyre_hpc.observability.events import Event

_LISTENS = "0A"
_ASK_S = 5.0


class Engines:
    """Those of the cells whose leaders are `pids`; found by the ports they listen on."""

    def __init__(self, token: str, pids: Iterable[int]) -> None:
        self._token = token
        with ThreadPoolExecutor() as pool:
            asked = [port for pid in pids for port in listening(pid)]
            self._ports = [port for port, sampled in zip(asked, pool.map(self._ask, asked), strict=True) if sampled is not None]

    def __len__(self) -> int:
        return len(self._ports)

    def sampled(self) -> int:
        """Of all together, since their cells were started. Raises RuntimeError when one does not answer."""
        with ThreadPoolExecutor() as pool:
            told = list(pool.map(self._ask, self._ports))
        if None in told:
            raise RuntimeError("an engine does not say what it sampled")
        return sum(num for num in told if num is not None)

    def _ask(self, port: int) -> int | None:
        """None: no engine listens there."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ASK_S)
        try:
            connection.request("GET", "/server_info", headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            body = answer.read()
            return int(json.loads(body)["counters"]["sampled"]) if answer.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def listening(pid: int) -> list[int]:
    """TCP ports of IPv4 on which a process listens; none when it is gone."""
    try:
        table = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
        held = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}
    except OSError:
        return []
    rows = [line.split() for line in table]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENS and f"socket:[{row[9]}]" in held]


def last_words(events: Iterable[Event], attempt: int) -> int:
    """What the engines of cells that ended in order in this attempt had sampled."""
    told: list[Mapping[str, int]] = [
        event.fields["counts"] for event in events if event.kind == "engine_tokens" and event.attempt == attempt
    ]
    return sum(int(counts["sampled"]) for counts in told)
