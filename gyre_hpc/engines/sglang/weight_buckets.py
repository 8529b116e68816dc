"""All weights of a model as portions of bounded size: a server keeps one portion beside its own weights while it takes it in."""

from collections.abc import Mapping

BUCKET_BYTES = 512 * 2**20


def buckets(sizes: Mapping[str, int], bound: int = BUCKET_BYTES) -> list[tuple[str, ...]]:
    """Names in their order, cut into portions of at most `bound` bytes; a tensor that is larger by itself is alone in its portion.
    No portion could take in the first tensor of the next one."""
    if bound <= 0:
        raise ValueError(f"bound={bound!r}: must be positive")
    portions: list[tuple[str, ...]] = []
    portion: list[str] = []
    used = 0
    for name, size in sizes.items():
        if portion and used + size > bound:
            portions.append(tuple(portion))
            portion, used = [], 0
        portion.append(name)
        used += size
    return [*portions, tuple(portion)] if portion else portions
