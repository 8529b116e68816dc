"""The engine's hash of ids is the gateway's."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.engines.ids_digest import IdsDigest

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=20)


@given(pieces=st.lists(IDS, max_size=5))
def test_pieces_hash_like_the_whole(pieces: list[list[int]]) -> None:
    digest = IdsDigest()
    for piece in pieces:
        digest.update(piece)
    whole = [token for piece in pieces for token in piece]
    packed = b"".join(token.to_bytes(4, "little") for token in whole)
    assert digest.hexdigest() == IdsDigest(whole).hexdigest() == hashlib.blake2b(packed, digest_size=16).hexdigest()
    assert digest.num_ids == len(whole)
