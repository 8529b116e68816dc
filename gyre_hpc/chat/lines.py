"""Where a text can be cut behind line ends without any change of its tokens.

Tool output repeats itself by lines: the same files, listings and tracebacks, in one execution and in all of a group. Byte-level BPE
merges within the words a pattern splits off, so a cut is exact where no word can reach across it. For the patterns below that is
so behind a newline whose following space holds no further line end: every alternative either has no newline, or only ends in
newlines, and `\\s*[\\r\\n]+` takes a run of space up to its last line end, whatever follows. There is no look-behind, and NFC
composes nothing with a newline. Unknown patterns are never cut.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_KNOWN = frozenset(_WORDS % digits for digits in (r"\p{N}", r"\p{N}{1,3}"))
"""Qwen2 to Qwen3, and Llama 3."""
_BEHIND_LINES = re.compile(r"(?<=\n)(?=[^\S\r\n]*\S)")


def line_cut(normalizer: Any, pre_tokenizer: Any, added: Iterable[AddedToken]) -> "re.Pattern[str] | None":
    """Splits a text where that is exact; None where it is not known to be."""
    if any(token.lstrip or token.rstrip or token.single_word or "\n" in token.content for token in added):
        return None
    if _state(normalizer) not in (None, {"type": "NFC"}) or not _is_known(_state(pre_tokenizer)):
        return None
    return _BEHIND_LINES


def _state(part: Any) -> Any:
    """A part of a tokenizer as JSON; None when it has none."""
    return json.loads(part.__getstate__()) if part is not None else None


def _is_known(state: Any) -> bool:
    parts = state.get("pretokenizers", []) if isinstance(state, dict) else []
    if [part.get("type") for part in parts] != ["Split", "ByteLevel"]:
        return False
    split, levels = parts
    return (
        split.get("pattern", {}).get("Regex") in _KNOWN
        and (split.get("behavior"), split.get("invert")) == ("Isolated", False)
        and (levels.get("add_prefix_space"), levels.get("use_regex")) == (False, False)
    )
