"""What all processes of the benchmark agree on: answers, sizes, pace."""

from pathlib import Path

import msgspec

BODY_2K = 1954
BODY_1M = 1_049_537
"""Bytes of a request body."""
NUM_CHUNKS = 40
GAP_S = 0.01
STAMP_DIGITS = 20
CHUNK_TOKENS = STAMP_DIGITS + 1


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Handed to the stub as a JSON file."""

    run_token: str
    tokenizer: str
    template: str
    """Chat format of the gateway under test."""
    describe: str
    """The tokenizer in words."""
    text: str
    """Answer of every call of the load."""
    answers: dict[str, tuple[int, ...]]
    """Mode -> output ids. `now` says `text` and ends itself; `long` is an answer of some hundred tokens."""
    long_text: str
    digits: tuple[int, ...]
    """Ids of the ten digits."""
    space: int

    @classmethod
    def read(cls, path: Path) -> "Plan":
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(self))
