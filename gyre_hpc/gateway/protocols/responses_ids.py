"""Ids of responses and their items, made from the call they belong to, and handles of reasoning nobody else can make.

An execution id holds no underscore, so `<kind>_<execution>_<ordinal>[_<place>]` is read back without doubt.
"""

import hashlib
import hmac
import re

from gyre_hpc.protocol.tokens import execution_token

_OURS = re.compile(r"(resp|msg|rs|fc|ctc|call)_((?:train|eval|warm)-[0-9r-]{5,60})_(\d{1,9})(?:_\d{1,9})?")
_HANDLE = "gyre1"


def item_id(kind: str, call: str, place: int | None = None) -> str:
    """`kind`: resp, msg, rs, fc or ctc."""
    stem = f"{kind}_{call.replace('/', '_')}"
    return stem if place is None else f"{stem}_{place}"


def call_of(id: str, kind: str = "") -> str:
    """The call an id was made from, tool-call ids of the machine included; empty when it is not ours (or not of this kind)."""
    match = _OURS.fullmatch(id)
    if match is None or (kind and match[1] != kind):
        return ""
    return f"{match[2]}/{match[3]}"


class Handles:
    """What stands for the reasoning of a call in `encrypted_content`: the call and a seal with its execution's key."""

    def __init__(self, run_token: str) -> None:
        self._run_token = run_token

    def mint(self, call: str) -> str:
        """The same call has always the same handle."""
        return f"{_HANDLE}.{call.replace('/', '_')}.{self._seal(call)}"

    def call(self, handle: str, execution: str) -> str:
        """The call behind a handle this execution got. Raises ValueError for every other text."""
        head, _, rest = handle.partition(".")
        name, _, seal = rest.rpartition(".")
        call = call_of(f"resp_{name}")
        if head == _HANDLE and call.startswith(f"{execution}/") and hmac.compare_digest(seal.encode(), self._seal(call).encode()):
            return call
        raise ValueError("The encrypted content could not be verified: send back what this execution was given")

    def _seal(self, call: str) -> str:
        key = execution_token(self._run_token, call.partition("/")[0])
        return hmac.new(key.encode(), f"reasoning {call}".encode(), hashlib.sha256).hexdigest()[:32]
