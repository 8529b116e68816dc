"""Deterministic mode: a call's log-probs are the same to the last bit, whatever happens around it. Compared by bits, never by a bound."""

import dataclasses
import functools
import struct

import pytest
import torch

from gyre_hpc.engines.embedded.core import EngineCore
from gyre_hpc.engines.embedded.fixed_forward import FixedForward
from gyre_hpc.engines.embedded.memory import KVMemory
from gyre_hpc.engines.request import Request
from gyre_hpc.models.fixed_step import FixedShape, fixed_step, rows_are_alike
from gyre_hpc.models.incremental import Prepared
from gyre_hpc.models.parameters import random_parameters
from gyre_hpc.models.qwen3 import target_logprobs
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.identity import Version

MODEL = Qwen3Config(
    vocab_size=131, hidden_size=64, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16, intermediate_size=256, max_context=200
)
PARAMS = random_parameters(MODEL, 3)
V0, V1 = Version(0, 0), Version(0, 1)
ROWS, PAGE = 6, 8
PROMPT = [(7 * n * n + 3 * n) % MODEL.vocab_size for n in range(43)]
NUM = 60
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def one_thread() -> None:
    torch.set_num_threads(1)


class Cell:
    """One engine core on the fixed forward, awake at V0."""

    def __init__(self, *, kv_tokens: int = 1600, prefill_chunk: int = 512, rows: int = ROWS) -> None:
        forward = FixedForward(MODEL, rows)
        self.core = EngineCore(
            lambda: KVMemory(forward, kv_tokens=kv_tokens, page_size=PAGE, max_batch=rows, keep_kv=False),
            forward=forward, snapshot=lambda version: PARAMS, decode=None, max_batch=rows, prefill_chunk=prefill_chunk,
            keep_kv=False, stream_tokens=1 << 30, stream_s=1e9, now=lambda: 0.0,
        )  # fmt: skip
        self.core.weights.stage(V0)
        self.core.wake(V0)
        self.logprobs: dict[int, list[float]] = {}
        self.ids: dict[int, list[int]] = {}

    def add(self, number: int, ids: list[int] = PROMPT, *, num: int = NUM, key: bytes = b"key", position: int = 0) -> None:
        self.logprobs[number], self.ids[number] = [], []
        request = Request(
            rid=str(number), input_ids=tuple(ids), temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=num, stop_ids=frozenset(),
            key=key, position=position, return_logprob=True, stream=False, incremental=False, call=f"train-0-0-0/{number}",
        )  # fmt: skip
        self.core.add(number, request)

    def run(self, steps: int = 1 << 30) -> None:
        while self.core.has_work and steps:
            self._take(self.core.step())
            steps -= 1

    def abort(self, number: int) -> None:
        self._take(self.core.abort(number, "moved"))

    def answer(self, number: int) -> "Answered":
        return Answered(tuple(self.ids[number]), bits(self.logprobs[number]))

    def _take(self, pieces: list) -> None:  # type: ignore[type-arg]
        for piece in pieces:
            self.ids[piece.number] += piece.ids
            self.logprobs[piece.number] += piece.logprobs


@dataclasses.dataclass(frozen=True)
class Answered:
    ids: tuple[int, ...]
    logprobs: bytes


def bits(numbers: list[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}d", *numbers)


@functools.cache
def alone() -> Answered:
    """The call with nobody beside it."""
    cell = Cell()
    cell.add(0)
    cell.run()
    assert len(cell.ids[0]) == NUM and cell.core.counters["cached"] == 0
    return cell.answer(0)


def other(n: int) -> list[int]:
    return [(11 * i + 5 * n) % MODEL.vocab_size for i in range(9 + 7 * n)]


def test_companions_and_the_row_a_call_stands_in_change_nothing() -> None:
    cell = Cell()
    for n in range(1, ROWS):
        cell.add(n, other(n), key=bytes([n]), num=5 * n)  # they end one after another: the last row moves into their places
    cell.run(steps=3)
    cell.add(0)
    cell.run()
    assert cell.answer(0) == alone()


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_how_a_prompt_is_cut_changes_nothing(chunk: int) -> None:
    cell = Cell(prefill_chunk=chunk)
    cell.add(1, other(3), key=b"x")
    cell.add(0)
    cell.run()
    assert cell.answer(0) == alone()


def test_a_prefix_found_in_the_cache_changes_nothing() -> None:
    cell = Cell()
    cell.add(1, PROMPT[:30], key=b"another", num=2)
    cell.run()
    cell.add(0)
    cell.run()
    assert cell.core.counters["cached"] == 24
    assert cell.answer(0) == alone()


@pytest.mark.parametrize("cut", [1, 13, 24, NUM - 1])
def test_tokens_prefilled_elsewhere_are_the_same_as_decoded_here(cut: int) -> None:
    """A continuation: what one cell decoded another one prefills, beside other work."""
    whole = alone()
    here = Cell()
    here.add(0)
    here.run(steps=cut)
    here.abort(0)
    there = Cell()
    there.add(1, other(4), key=b"x")
    there.run(steps=2)
    there.add(0, PROMPT + here.ids[0], num=NUM - cut, position=cut)
    there.run()
    assert tuple(here.ids[0] + there.ids[0]) == whole.ids
    assert bits(here.logprobs[0] + there.logprobs[0]) == whole.logprobs


def test_pages_decoded_there_serve_a_continuation_here() -> None:
    whole = alone()
    there, here = Cell(), Cell()
    there.add(0)
    there.run(steps=30)
    there.abort(0)
    context = PROMPT + there.ids[0]
    assert import_pages(there, here) == (len(context) - 1) // PAGE
    here.add(0, context, num=NUM - 30, position=30)
    here.run()
    assert here.core.counters["cached"] == (len(context) - 1) // PAGE * PAGE
    assert tuple(there.ids[0] + here.ids[0]) == whole.ids
    assert bits(there.logprobs[0] + here.logprobs[0]) == whole.logprobs


def import_pages(source: Cell, target: Cell) -> int:
    """Carry the full pages of the only conversation over, as bytes, in the engine's own way; returns how many."""
    ours, theirs = source.core.memory, target.core.memory
    assert ours is not None and theirs is not None
    lease = ours.pages.lease([conversation.call for conversation in ours.pages.conversations()])
    blocks = ours.pages.blocks(lease)
    reservation = theirs.pages.reserve(V0, blocks)
    assert reservation.num_blocks == len(reservation.wanted) == len(blocks)
    read = ours.page_bytes.leased(lease, reservation.wanted)
    for page, copy in zip(read, theirs.page_bytes.reserved(reservation.number, 0, len(blocks)), strict=True):
        copy[:] = page
    published = theirs.pages.publish(reservation.number, tuple(range(len(blocks))), V0)
    theirs.pages.cancel(reservation.number)
    ours.pages.release(lease)
    return len(published)


def test_a_call_that_was_retracted_says_the_same() -> None:
    cell = Cell(kv_tokens=200)
    cell.add(1, other(5), key=b"x", num=100)
    cell.add(0)
    cell.run()
    assert cell.core.counters["retracted"] >= 1
    assert cell.answer(0) == alone()


def test_new_versions_of_held_weights_change_nothing() -> None:
    cell = Cell()
    cell.add(0)
    cell.run(steps=20)
    cell.core.weights.stage(V1)
    cell._take(cell.core.update(V1))
    cell.run()
    assert cell.answer(0) == alone()


def test_numbers_are_those_of_the_model() -> None:
    answered = alone()
    ids = torch.tensor([*PROMPT, *answered.ids])
    with torch.inference_mode():
        trained = target_logprobs(PARAMS, MODEL, ids, [len(ids)], torch.arange(len(PROMPT), len(ids)))
    ours = torch.tensor(struct.unpack(f"<{NUM}d", answered.logprobs))
    assert (trained - ours).abs().max() < 1e-4


def test_the_machines_product_keeps_rows_alike_and_one_that_does_not_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = Prepared(PARAMS, MODEL)
    for num_rows in (1, 4, ROWS, 16, 64):
        assert rows_are_alike(prepared, num_rows)
    product = torch.mm

    def careless(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = product(a, b)
        out[-1] = product(a[-1:], b.double().float()[:, :].contiguous())[0] * (1 + 2**-23)
        return out

    monkeypatch.setattr(torch, "mm", careless)
    assert not rows_are_alike(prepared, ROWS)
    with pytest.raises(RuntimeError, match="engine.deterministic"):
        FixedForward(MODEL, ROWS).prepare(PARAMS)


def test_a_full_context_fits_and_a_step_takes_no_more_rows_than_its_shape() -> None:
    shape = FixedShape(MODEL, 2)
    prepared = Prepared(PARAMS, MODEL)
    context = shape.new_context()
    fixed_step(prepared, shape, [1], [MODEL.max_context - 1], [context])
    with pytest.raises(AssertionError):
        fixed_step(prepared, shape, [1, 2, 3], [0, 1, 2], [context] * 3)
