"""What a mode wishes for, before the rules that hold in every mode are applied to it (choose.py)."""

import msgspec


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Training cells a mode would have now."""

    want: int
    reason: str
    may_pause: bool = False
    """All cells may train although executions are live: their calls wait in the gateway."""
    forced: bool = False
    """Training is the only thing that lets anything progress."""
