"""Tokenising in pieces gives the tokenizer's own ids, and equal pieces once."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from gyre_hpc.chat.base import Message
from gyre_hpc.chat.folder import hf_format
from gyre_hpc.chat.hf_tokenizer import HfTokenizer
from gyre_hpc.chat.pieces import PieceEncoder
from gyre_hpc.config.model_schema import ModelConfig
from tests.fakes.chat_folders import SPECIAL, WORDS, tokenizer_folder

PATIENT = settings(deadline=None)
TOKENIZER = HfTokenizer(tokenizer_folder(nfc=True))
TEXTS = st.lists(
    st.one_of(st.sampled_from([*SPECIAL, *WORDS, "hello", " ", "\n", "e\u0301", "<|im_", "end|>"]), st.text(max_size=4)), max_size=12
).map("".join)


@PATIENT
@given(TEXTS)
def test_pieces_are_encoded_as_the_whole(text: str) -> None:
    encoder = PieceEncoder(TOKENIZER, SPECIAL)
    assert encoder.encode(text) == TOKENIZER.encode(text)
    assert encoder.encode(text) == TOKENIZER.encode(text)


@PATIENT
@given(st.lists(TEXTS, max_size=6), st.integers(0, 2000))
def test_the_cache_stays_within_its_bytes_and_changes_nothing(texts: list[str], max_bytes: int) -> None:
    encoder = PieceEncoder(TOKENIZER, SPECIAL, max_bytes=max_bytes)
    for text in texts * 2:
        assert encoder.encode(text) == TOKENIZER.encode(text)
        assert encoder.num_bytes <= max_bytes


def test_no_cut_is_made_where_the_tokenizer_would_not_make_it() -> None:
    """A token that overlaps the mark, and one that swallows the space before it."""
    tokenizer = HfTokenizer(tokenizer_folder())
    tokenizer._backend.add_special_tokens([AddedToken("<eats>", lstrip=True, normalized=False), AddedToken("x<|im_", normalized=False)])
    tokenizer.added = {token.content: token for token in tokenizer._backend.get_added_tokens_decoder().values()}
    encoder = PieceEncoder(tokenizer, ["<eats>", "<|im_end|>", "<|im_start|>"])
    for text in ("hello   <eats> hello", "x<|im_end|>", "<|im_start|>user\nx<|im_start|>"):
        assert encoder.encode(text) == tokenizer.encode(text)


def test_what_prompts_share_is_tokenised_once() -> None:
    folder = tokenizer_folder("coder")
    chat = hf_format(ModelConfig(tokenizer=str(folder), template="own"), folder)
    shared = [Message(role="system", content="rules " * 2000), Message(role="user", content="task")]
    chat.render(shared, [])
    before = chat.pieces.num_encoded
    chat.render([*shared, Message(role="assistant", content="ok"), Message(role="user", content="more")], [])
    assert chat.pieces.num_encoded - before < 100


def test_a_suffix_costs_what_it_is_long_whatever_came_before() -> None:
    folder = tokenizer_folder("coder")
    chat = hf_format(ModelConfig(tokenizer=str(folder), template="own"), folder)
    later = [Message(role="tool", content="result 1", tool_call_id="x")]
    chat.render([Message(role="user", content="long " * 50000)], [])
    before = chat.pieces.num_encoded
    assert len(chat.render_suffix(later, ended=True)) < 60
    assert chat.pieces.num_encoded - before < 200
