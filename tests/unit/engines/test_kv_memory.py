"""Pages, rows and sequences in step: what is found for whom, and that everything comes back."""

import pytest
import torch

from gyre_hpc.engines.embedded.forward import Forward
from gyre_hpc.engines.embedded.memory import KVMemory
from gyre_hpc.engines.embedded.sequence import Sequence
from gyre_hpc.engines.request import Request
from gyre_hpc.engines.stopping import Stopping
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.identity import Version

V0, V1 = Version(0, 0), Version(0, 1)
MODEL = Qwen3Config(vocab_size=9, hidden_size=8, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=4, intermediate_size=8, max_context=64)


def memory(keep_kv: bool = False, num_pages: int = 16) -> KVMemory:
    return KVMemory(Forward(MODEL), kv_tokens=num_pages * 4, page_size=4, max_batch=4, keep_kv=keep_kv)


def sequence(number: int, ids: list[int]) -> Sequence:
    request = Request(
        rid=str(number),
        input_ids=tuple(ids),
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        max_new_tokens=9,
        stop_ids=frozenset(),
        key=b"k",
        position=0,
        return_logprob=True,
        stream=False,
        incremental=False,
    )
    return Sequence(number=number, request=request, ids=list(ids), stopping=Stopping(request, None))


def computed(kv: KVMemory, number: int, ids: list[int], version: Version) -> Sequence:
    """A sequence whose whole prompt was prefilled with random KV."""
    seq = sequence(number, ids)
    assert kv.begin_prefill(seq, version, num_spare=0)
    assert seq.prefill is not None
    seq.prefill[..., seq.num_kv :] = torch.randn(*seq.prefill.shape[:-1], len(ids) - seq.num_kv)
    seq.num_kv = len(ids)
    kv.seal(seq, version)
    return seq


@pytest.mark.parametrize("keep_kv", [False, True])
def test_pages_of_another_version_are_found_only_with_keep(keep_kv: bool) -> None:
    """By key alone: nothing was flushed here."""
    kv, ids = memory(keep_kv), [1, 2, 3, 4, 5, 6, 7, 8, 1]
    kv.release(computed(kv, 0, ids, V0))
    other, same = sequence(1, ids), sequence(2, ids)
    assert kv.begin_prefill(other, V1, num_spare=0)
    assert (other.num_kv, other.oldest_kv) == ((8, V0) if keep_kv else (0, V1))
    assert kv.begin_prefill(same, V0, num_spare=0)
    assert (same.num_kv, same.oldest_kv) == (8, V0)


def test_found_pages_bring_the_numbers_back() -> None:
    kv, ids = memory(), [1, 2, 3, 4, 5, 6, 7, 8, 1]
    first = computed(kv, 0, ids, V0)
    assert first.prefill is not None
    numbers = first.prefill[..., :8].clone()
    kv.release(first)
    second = sequence(1, ids)
    assert kv.begin_prefill(second, V0, num_spare=0)
    assert second.prefill is not None and torch.equal(second.prefill[..., :8], numbers)


def test_a_prompt_wholly_cached_still_computes_its_last_token() -> None:
    kv, ids = memory(), [1, 2, 3, 4, 5, 6, 7, 8]
    kv.release(computed(kv, 0, ids, V0))
    again = sequence(1, ids)
    assert kv.begin_prefill(again, V0, num_spare=0)
    assert again.num_kv == 4


def test_two_that_compute_the_same_share_one_page_in_the_end() -> None:
    kv, ids = memory(), [1, 2, 3, 4, 5]
    one, other = sequence(0, ids), sequence(1, ids)
    for seq in (one, other):
        assert kv.begin_prefill(seq, V0, num_spare=0)
        seq.num_kv = 5
    kv.seal(one, V0)
    kv.seal(other, V0)
    assert one.pages[0] == other.pages[0]
    assert kv.table.num_held == 3
    kv.release(one)
    kv.release(other)
    kv.table.check()
    assert kv.table.num_held == 0


def test_without_room_nothing_is_held() -> None:
    kv = memory(num_pages=16)
    big = computed(kv, 0, [1] * 50, V0)
    held = kv.table.num_held
    late = sequence(1, [1] * 50 + [2] * 10)
    assert not kv.begin_prefill(late, V0, num_spare=1)
    assert kv.table.num_held == held and not late.pages
    assert kv.begin_prefill(late, V0, num_spare=0)
    kv.release(late)
    kv.release(big)
    assert kv.table.num_held == 0
