"""Random numbers by counter: number n of a key is always the same, whoever draws it and whenever (DESIGN §5)."""

import hashlib


def uniform(key: bytes, position: int) -> float:
    """A float64 in [0, 1 - 2^-52], from the first 52 bits of blake2b(position, key).

    52 bits, not 53: then uniform * total < total for every float64 total, so inverse CDF never runs past the last token.
    """
    digest = hashlib.blake2b(position.to_bytes(8, "little"), key=key[:64], digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 12) * 2.0**-52
