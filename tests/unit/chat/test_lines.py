"""Cuts behind line ends change no token, and are made only for patterns of which that is known."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from gyre_hpc.chat import lines
from gyre_hpc.chat.lines import line_cut

TEXT = "def work(self):\n    return 'it''s'\n\n\n\t# 12345 years, it's\r\n  x = {\n    1: 2,\n  }  \n \n中文 text!\n\n"


def byte_level(pattern: str, normalizer: object = None) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator([TEXT] * 3, trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=alphabet))
    return backend


BACKENDS = [byte_level(pattern, normalizers.NFC() if nfc else None) for pattern in sorted(lines._KNOWN) for nfc in (False, True)]
PARTS = [
    "\n",
    "\n",
    "\r\n",
    "\r",
    " ",
    "  ",
    "\t",
    "a",
    "B",
    "é",
    "e\u0301",
    "\u0301",
    "1",
    "2345",
    "!",
    "?",
    "'s",
    "'",
    "中",
    "_",
    "{",
    "}",
]
SPACES = ["\u00a0", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\u200b", "\u1680", "\u3000", "\ufeff"]


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(BACKENDS), st.lists(st.sampled_from([*PARTS, *SPACES, "return", "self"]) | st.text(max_size=2), max_size=25))
def test_lines_encoded_one_by_one_are_the_whole(backend: Tokenizer, parts: list[str]) -> None:
    cut, text = line_cut(backend.normalizer, backend.pre_tokenizer, []), "".join(parts)
    assert cut is not None
    pieces = cut.split(text)
    assert "".join(pieces) == text
    encoded = backend.encode_batch_fast(pieces, add_special_tokens=False)
    assert [id for one in encoded for id in one.ids] == backend.encode(text, add_special_tokens=False).ids


def test_lines_are_cut_one_by_one() -> None:
    cut = line_cut(None, BACKENDS[0].pre_tokenizer, [AddedToken("<|im_end|>", special=True)])
    assert cut is not None
    assert cut.split("a\n  b\n\n \n  c\n\n") == ["a\n", "  b\n\n \n", "  c\n\n"]


def test_unknown_patterns_normalizers_and_greedy_tokens_are_never_cut() -> None:
    known = BACKENDS[0]
    greedy = [AddedToken("<x>", rstrip=True), AddedToken("<x>", lstrip=True), AddedToken("<x>", single_word=True), AddedToken("a\nb")]
    assert all(line_cut(None, known.pre_tokenizer, [token]) is None for token in greedy)
    assert line_cut(normalizers.NFKC(), known.pre_tokenizer, []) is None
    assert line_cut(None, None, []) is None
    for other in (
        byte_level(r"\s+|\S+"),
        byte_level(json.loads(known.pre_tokenizer.__getstate__())["pretokenizers"][0]["pattern"]["Regex"] + "|x"),
    ):
        assert line_cut(None, other.pre_tokenizer, []) is None
    assert line_cut(None, pre_tokenizers.ByteLevel(add_prefix_space=False), []) is None
