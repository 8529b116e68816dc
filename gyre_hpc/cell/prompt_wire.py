"""What the two cells of a pair say to each other (engine.sglang.kv=pd); the one that prefills serves it.

    GET  /pd/where            -> Found      where its bootstrap server listens
    POST /pd/prompt   Prompt  -> beats, then Computed      compute a prompt; hanging up ends it

msgpack; 400 with the field for a body that is wrong in itself. A beat is one byte that begins no map.
"""

from typing import Any

import msgspec

from gyre_hpc.cell.kv_wire import BadBody

BEAT = b"."
BEAT_S = 1.0
SILENCE_S = 10.0
"""A process that is alive sends beats meanwhile."""
LONGEST_S = 600.0
"""Of one prompt: the gateway has given its call up long before."""


class Found(msgspec.Struct, frozen=True):
    host: str
    port: int


class Prompt(msgspec.Struct, frozen=True):
    body: dict[str, Any]
    """Of the request, as the decoding server has it."""
    version: str
    """Label of the decoding server's weights."""


class Computed(msgspec.Struct, frozen=True):
    label: str = ""
    """Of the weights that computed it; empty: nothing was computed."""
    reason: str = ""
    """Why nothing was."""
    is_refused: bool = False
    """The request is wrong in itself."""


def read_found(data: bytes) -> Found:
    """Raises BadBody."""
    found = _read(Found, data)
    if not found.host or not 0 < found.port < 1 << 16:
        raise BadBody(f"Found: {found}")
    return found


def read_prompt(data: bytes) -> Prompt:
    """Raises BadBody."""
    return _read(Prompt, data)


def read_computed(data: bytes) -> Computed:
    """A whole answer, beats and all. Raises BadBody."""
    computed = _read(Computed, data.lstrip(BEAT))
    if bool(computed.label) == bool(computed.reason):
        raise BadBody("Computed: make it a label or a reason")
    return computed


def _read(kind: type[Any], data: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadBody(f"{kind.__name__}: {error}") from None
