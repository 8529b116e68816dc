"""Messages of a live run, said once more when their term is over: as a network might that holds them back."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from gyre_hpc.machines.base import Received, Send, Start
from gyre_hpc.protocol.envelope import Envelope, encode
from gyre_hpc.protocol.to_cell import Order
from tests.fakes.fresh_machines import lives
from tests.fakes.live_faults import reports
from tests.fakes.whole_run import WholeRun


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What was said to `cell`, and what it answered."""

    cell: str
    order: Order
    term: int
    """The newest one when it was said."""
    generate: tuple[int, int]
    """Status of a request in the order's term, and the term that the engine named."""
    order_of_old_attempt: int
    """Status of the same order from an earlier start of the run."""


def replay(run: WholeRun, cell: str) -> Replayed:
    """The first order to train that `cell` ever got, and a request in its term; it has moved on since."""
    orders = [message for message in _sent(run, "controller") if isinstance(message, Order)]
    told = [order for order in orders if order in _received(run, cell)]
    order = next(order for order in told if order.role.name == "train")
    newest = max(told, key=lambda one: one.seq)
    assert newest.term > order.term, f"{cell} has not moved on"
    (url,) = [entry["url"] for entry in json.loads(run.folder.endpoints.read_text())["entries"] if entry["process"] == cell]
    engine = next(report.engine_url for report in reports(run) if report.cell == cell)
    body = json.dumps({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4}}).encode()
    status, answer = _post(run, f"{engine}/generate", body, {"X-Gyre-Term": str(order.term)})
    ignored, _ = _post(run, f"{url}/messages", encode(Envelope("controller", 1, order)))
    assert ignored in (204, 409)
    old, _ = _post(run, f"{url}/messages", encode(Envelope("controller", 0, order)))
    return Replayed(cell=cell, order=order, term=newest.term, generate=(status, json.loads(answer)["term"]), order_of_old_attempt=old)


def steps_after(run: WholeRun, replayed: Replayed) -> list[list[Start]]:
    """What the cell started on hearing the order again; an entry for each time."""
    (life,) = lives(run.folder, replayed.cell)
    starts: list[list[Start]] = []
    newest = -1
    for _, told, effects in life:
        if isinstance(told, Received) and isinstance(told.message, Order):
            if told.message == replayed.order and newest > replayed.order.seq:
                starts.append([effect for effect in effects if isinstance(effect, Start)])
            newest = max(newest, told.message.seq)
    return starts


def _received(run: WholeRun, process: str) -> list[Any]:
    return [told.message for life in lives(run.folder, process) for _, told, _ in life if isinstance(told, Received)]


def _sent(run: WholeRun, process: str) -> list[Any]:
    return [effect.message for life in lives(run.folder, process) for *_, effects in life for effect in effects if isinstance(effect, Send)]


def _post(run: WholeRun, url: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    token = run.folder.token.read_text().strip()
    request = urllib.request.Request(url, data=body, headers={"Authorization": f"Bearer {token}", **(headers or {})}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
