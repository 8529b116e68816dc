"""Signatures of thinking blocks: opaque handles that a client sends back with the block.

A signature names the call and, where the text was left out of the block (`display: omitted`), carries it: so a history that
must be rendered anew has its thinking, wherever it is rendered. Signatures of other servers carry nothing.
"""

import base64
import binascii

_MARK = "gyre1"


def sign(call: str, reasoning: str, *, shown: bool) -> str:
    """Signature of a thinking block of `call`; `shown`: the block has the text itself."""
    return f"{_MARK}.{_packed(call)}.{'' if shown else _packed(reasoning)}"


def carried(signature: str) -> str:
    """The reasoning a signature carries; empty when it carries none or is not one of ours."""
    mark, _, rest = signature.partition(".")
    packed = rest.partition(".")[2]
    if mark != _MARK or not packed:
        return ""
    try:
        return base64.b64decode(packed, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _packed(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode("utf-8", "replace")).decode()
