"""Members of a group show each other that they know its nonce, without ever showing the nonce.

The stores that process groups meet in know no token: whoever finds the port can write there. A proof binds the nonce to
generation and rank, so it is of no use elsewhere. What stays open (a stranger who overwrites keys makes a reduce fail)
is in docs/security.md.
"""

import hashlib
import hmac


def proof(nonce: str, generation: int, rank: int, world: int) -> str:
    """Hex HMAC-SHA256 of the member's place under the nonce."""
    return hmac.new(nonce.encode(), f"{generation}/{rank}/{world}".encode(), hashlib.sha256).hexdigest()


def is_right(shown: str, nonce: str, generation: int, rank: int, world: int) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(shown.encode(), proof(nonce, generation, rank, world).encode())
