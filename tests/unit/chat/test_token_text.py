"""Bytes of tokens, text of streams: as the tokenizers library decodes, but piece by piece."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers

from gyre_hpc.chat.hf_tokenizer import HfTokenizer
from gyre_hpc.chat.token_text import drops_first_space, token_bytes
from gyre_hpc.errors import UserError
from tests.fakes.chat_folders import tokenizer_folder

PATIENT = settings(deadline=None)
BYTE_LEVEL = HfTokenizer(tokenizer_folder())
IDS = st.lists(st.integers(0, BYTE_LEVEL.vocab_size - 1), max_size=30)


def sentence_piece(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    """Words with a mark for spaces, bytes for the rest, the first space dropped: as Llama 2 has it."""
    space = "\N{LOWER ONE EIGHTH BLOCK}"
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), space, "a", "b", f"{space}a", "ab", f"{space}ab"]
    merges = [(space, "a"), ("a", "b"), (f"{space}a", "b")]
    backend = Tokenizer(
        models.BPE({word: id for id, word in enumerate(words)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(space), normalizers.Replace(" ", space)])
    backend.decoder = decoders.Sequence(
        [decoders.Replace(space, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1, right=0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    folder = tmp_path_factory.mktemp("sentencepiece")
    backend.save(str(folder / "tokenizer.json"))
    return HfTokenizer(folder)


@PATIENT
@given(IDS)
def test_text_of_ids_is_that_of_the_library(ids: list[int]) -> None:
    assert BYTE_LEVEL.decode(ids) == BYTE_LEVEL._backend.decode(ids, skip_special_tokens=False)


@PATIENT
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_survives(text: str) -> None:
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode(text)) == text


@PATIENT
@given(IDS, st.lists(st.integers(1, 5)))
def test_pieces_of_a_stream_are_its_text_and_are_never_taken_back(ids: list[int], sizes: list[int]) -> None:
    stream, text, at = BYTE_LEVEL.stream(), "", 0
    for size in [*sizes, len(ids)]:
        text += stream.push(ids[at : at + size])
        at += size
    assert text + stream.end() == BYTE_LEVEL.decode(ids)


@PATIENT
@given(IDS, IDS)
def test_tokens_of_a_stretch_are_found_to_the_token(before: list[int], after: list[int]) -> None:
    call = BYTE_LEVEL.encode("<tool_call>")
    ids = [*before, *call, *after]
    stream = BYTE_LEVEL.stream()
    head = stream.push(before)
    text = head + stream.push([*call, *after]) + stream.end()
    start = text.index("<tool_call>", len(head))
    first, last = stream.tokens(start, start + len("<tool_call>"))
    assert ids[first:last] == call


def test_ids_beyond_the_vocabulary_say_nothing() -> None:
    hello = BYTE_LEVEL.encode("hello")
    assert BYTE_LEVEL.decode([10**6, *hello, -1, BYTE_LEVEL.vocab_size]) == "hello"


def test_text_without_a_utf_8_form_is_encoded_with_question_marks() -> None:
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode("a\ud800b")) == "a?b"


def test_a_word_tokenizer_with_bytes_for_the_rest_works_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    tokenizer = sentence_piece(tmp_path_factory)
    for text in ("ab a b", "a\u00e9 \N{BOTTLE WITH POPPING CORK}ab</s>", "  ab"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text == tokenizer._backend.decode(ids, skip_special_tokens=False)


def test_tokens_that_stand_for_no_bytes_are_refused() -> None:
    for decoder in (None, {"type": "WordPiece"}):
        with pytest.raises(UserError, match=r"model\.tokenizer.*byte-level"):
            token_bytes(decoder, {"a": 0}, {}, "model.tokenizer")
        assert not drops_first_space(decoder)
