"""Long texts of a harness -> placeholders of the same structure, so that a recording holds nothing that belongs to somebody else.

`First words<text 1234 #hash>`: equal texts give equal placeholders, so what is equal between two turns stays equal, and what a
text begins with stays readable. What the script said stays as it is, wherever it comes back.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

from gyre_hpc.rehearsal.script import MARK

_LONGEST = 60
"""Characters that stay without a placeholder."""
_SHOWN = 24
_HANDLE = "gyre1."
"""What stands for the reasoning of a call: ours, and compared letter by letter."""


class Redaction:
    """For one harness. `kept`: words by which its calls are told apart. `ours`: texts that were said by the script."""

    def __init__(self, kept: Iterable[str], ours: Iterable[str]) -> None:
        self._kept, self._ours = tuple(kept), "\0".join(ours)

    def body(self, value: Any, key: str = "") -> Any:
        """The same JSON, texts replaced."""
        if isinstance(value, dict):
            return {name: self.body(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.body(inner, key) for inner in value]
        if not isinstance(value, str):
            return value
        return self._placeholder(value, "") if key == "description" and value else self.text(value)

    def text(self, text: str) -> str:
        if len(text) <= _LONGEST or text in self._ours or text.startswith(_HANDLE):
            return text
        if not MARK.search(text):
            return self._placeholder(text, text[:_SHOWN])
        return "\n".join(self._line(line) for line in text.split("\n"))

    def _line(self, line: str) -> str:
        if len(line) <= _LONGEST or MARK.search(line) or line in self._ours:
            return line
        return self._placeholder(line, line[:_SHOWN])

    def _placeholder(self, text: str, shown: str) -> str:
        words = " ".join(word for word in self._kept if word in text and word not in shown)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        start = next((word for word in self._kept if text.lstrip().startswith(word)), shown)
        end = next((word for word in self._kept if text.rstrip().endswith(word)), "")
        return f"{start}<text {len(text)} #{digest}{' ' + words if words else ''}>{end}"
