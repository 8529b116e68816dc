"""A micro-batch: what a training cell leases, fetches (msgpack) and accumulates. Arrays are little-endian bytes."""

import msgspec

from gyre_hpc.protocol.identity import Version


class Sequence(msgspec.Struct, frozen=True):
    """One root-to-leaf path of one execution, T tokens."""

    execution: str
    ids: bytes
    """int32 [T]."""
    weights: bytes
    """float32 [T]: 1/|T_e| where the token is a target trained by this sequence, else 0. A target shared by several
    admitted paths has its weight in exactly one of them. weights[0] is 0: the first token has no context."""
    logprobs: bytes
    """float32 [T]: behavior log-prob where weights > 0, else 0."""
    on_policy: bytes
    """uint8 [T]: 1 where the span version and the oldest KV version equal the update's version."""
    advantage: float


class MicroBatch(msgspec.Struct, frozen=True):
    """Sequences whose groups are complete. Its gradient is sum_e sum_t weight_t * l_t: a plain sum, no division."""

    id: str
    """`<update>:<ordinal>`; warm start: `warm:<ordinal>`."""
    update: int
    version: Version
    loss: str
    """`policy` (clipped policy gradient of conf algo) or `cross_entropy` (warm start; advantage 1)."""
    sequences: tuple[Sequence, ...]
    num_tokens: int
    num_targets: int


def encode(micro_batch: MicroBatch) -> bytes:
    return msgspec.msgpack.encode(micro_batch)


def decode(data: bytes) -> MicroBatch:
    """Raises msgspec.ValidationError naming the field that is wrong."""
    return msgspec.msgpack.decode(data, type=MicroBatch)
