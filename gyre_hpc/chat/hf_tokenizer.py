"""The tokenizer of a Hugging Face folder: tokenizer.json, and what tokenizer_config.json adds to it.

Special tokens inside a text become their ids, wherever the text came from, as with `transformers`. Text without a UTF-8 form
(lone surrogates) is encoded with question marks. A tokenizer that normalises (NFC) gives the normalised text back.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from gyre_hpc.chat.base import Tokenizer
from gyre_hpc.chat.lines import line_cut
from gyre_hpc.chat.token_text import TextStream, drops_first_space, token_bytes
from gyre_hpc.errors import UserError

# A gateway shard is one core's work; without this the library starts a thread for each core of the node.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_FIELD = "model.tokenizer"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class HfTokenizer(Tokenizer):
    """tokenizer.json of a folder. Raises UserError when there is none or it cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.config = read_json(folder / "tokenizer_config.json", optional=True)
        for name, value in read_json(folder / "special_tokens_map.json", optional=True).items():
            self.config.setdefault(name, value)
        self._backend = _load(folder, self.config)
        # Its serialised state is the one place where the library says how a decoder is made.
        decoder = json.loads(self._backend.decoder.__getstate__()) if self._backend.decoder is not None else None
        by_id = self._backend.get_added_tokens_decoder()
        self.added: dict[str, AddedToken] = {token.content: token for token in by_id.values()}
        self.special = {token.content: id for id, token in by_id.items()}
        self._table = token_bytes(decoder, self._backend.get_vocab(with_added_tokens=True), self.special, _FIELD)
        self._drop_first_space = drops_first_space(decoder)
        self.vocab_size = len(self._table)

    @property
    def named(self) -> dict[str, str]:
        """bos_token, eos_token and so on, as templates know them."""
        found = {name: self.config.get(name) for name in _NAMED}
        return {name: _content(value) for name, value in found.items() if value}

    @property
    def lines(self) -> "re.Pattern[str] | None":
        """Splits a text into parts that can be encoded one by one, where such are known."""
        return line_cut(self._backend.normalizer, self._backend.pre_tokenizer, self.added.values())

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def bytes_of(self, id: int) -> bytes:
        return self._table[id] if 0 <= id < self.vocab_size else b""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """One list of ids per text."""
        try:
            encoded = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError:  # the library's word for a string without a UTF-8 form
            clean = [text.encode("utf-8", "replace").decode() for text in texts]
            encoded = self._backend.encode_batch_fast(clean, add_special_tokens=False)
        return [one.ids for one in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        stream = self.stream()
        return stream.push(ids) + stream.end()

    def stream(self) -> TextStream:
        """For ids that arrive one after another."""
        return TextStream(self._table, drop_first_space=self._drop_first_space)


def read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """A JSON object from a file. Raises UserError for a missing (unless optional) or damaged one."""
    if optional and not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(_FIELD, str(path.parent), f"{path.name} cannot be read ({error}); name a folder with tokenizer.json") from error
    if not isinstance(value, dict):
        raise UserError(_FIELD, str(path.parent), f"{path.name} holds no JSON object")
    return value


def _content(value: Any) -> str:
    return str(value["content"]) if isinstance(value, dict) else str(value)


def _load(folder: Path, config: dict[str, Any]) -> Backend:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UserError(_FIELD, str(folder), "no tokenizer.json there; name a Hugging Face folder, or 'drill'")
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise UserError(_FIELD, str(folder), f"tokenizer.json cannot be read ({error})") from error
    backend.no_truncation()
    backend.no_padding()
    for id, entry in sorted(config.get("added_tokens_decoder", {}).items(), key=lambda item: int(item[0])):
        if backend.token_to_id(entry["content"]) != int(id):
            _add(backend, folder, int(id), entry)
    return backend


def _add(backend: Backend, folder: Path, id: int, entry: dict[str, Any]) -> None:
    """A token that only tokenizer_config.json knows."""
    token = AddedToken(**{name: value for name, value in entry.items() if name != "__type"})
    (backend.add_special_tokens if token.special else backend.add_tokens)([token])
    if backend.token_to_id(token.content) != id:
        found = backend.token_to_id(token.content)
        raise UserError(_FIELD, str(folder), f"tokenizer_config.json gives {token.content!r} the id {id}, tokenizer.json {found}")
