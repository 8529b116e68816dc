"""Source and reader of an offer show each other that they hold the same ticket, without showing its nonce (transport/proof.py)."""

import hashlib
import hmac

import msgspec

from gyre_hpc.transport import proof
from gyre_hpc.transport.kv_base import Ticket

SOURCE, READER = 0, 1


def shown_by(rank: int, ticket: Ticket) -> str:
    """What `rank` shows: bound to nonce, sizes and places, so that a ticket which was changed is not taken."""
    return proof.proof(_secret(ticket), 0, rank, 2)


def is_right(shown: str, rank: int, ticket: Ticket) -> bool:
    """Compared in constant time."""
    return proof.is_right(shown, _secret(ticket), 0, rank, 2)


def is_same(shown: str, right: str) -> bool:
    """As `is_right`, where what is right is kept."""
    return hmac.compare_digest(shown.encode(), right.encode())


def _secret(ticket: Ticket) -> str:
    return f"{ticket.offer}/{hashlib.sha256(msgspec.json.encode((ticket.sizes, ticket.places))).hexdigest()}"
