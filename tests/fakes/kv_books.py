"""Chains of pages without content, for the tests of their books."""

from gyre_hpc.engines.base import Block
from gyre_hpc.engines.page_table import ROOT, block_key
from gyre_hpc.protocol.identity import Version

NUM_PAGES, NUM_KEPT, SIZE = 12, 4, 2


def keys(chain: tuple[int, ...], version: Version) -> list[bytes]:
    """Keys of the pages of a conversation, each page named by one number."""
    made, key = [], ROOT
    for number in chain:
        key = block_key(key, str(version).encode(), [number] * SIZE)
        made.append(key)
    return made


def blocks_of(chains: list[tuple[str, tuple[int, ...]]], version: Version) -> tuple[Block, ...]:
    """What a lease of another engine with these conversations would give."""
    found: dict[bytes, Block] = {}
    for call, chain in chains:
        parent = ROOT
        for index, key in enumerate(keys(chain, version)):
            calls = (*(found[key].calls if key in found else ()), *((call,) if index == len(chain) - 1 else ()))
            found[key] = Block(key=key, parent=parent, oldest=version, num_tokens=SIZE, calls=calls)
            parent = key
    return tuple(found.values())
