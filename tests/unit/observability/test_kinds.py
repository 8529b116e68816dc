"""The catalogue of events, the code that notes them and docs/formats.md say the same."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gyre_hpc.observability.kinds import KINDS, required

ROOT = Path(__file__).resolve().parents[3]


def noted() -> Iterator[tuple[str, str, set[str] | None]]:
    """(place, kind, field names or None where they are not written out) of every Note(...) and .note(...) with a literal kind."""
    for path in sorted((ROOT / "gyre_hpc").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name not in ("Note", "note", "_note") or not isinstance(node.args[0].value, str):
                continue
            if name == "note" and len(node.args) + len(node.keywords) == 1:
                continue  # an event has fields, always; this is the state of an engine's server (engines/sglang/parts.py)
            fields = node.args[1] if len(node.args) > 1 else None
            names = None
            if isinstance(fields, ast.Dict) and all(isinstance(key, ast.Constant) for key in fields.keys if key is not None):
                names = {str(key.value) for key in fields.keys if isinstance(key, ast.Constant)}
                if None in fields.keys:
                    names = None
            yield f"{path.relative_to(ROOT)}:{node.lineno}", node.args[0].value, names


def test_every_kind_that_is_noted_is_in_the_catalogue():
    unknown = [(place, kind) for place, kind, _ in noted() if kind not in KINDS]
    assert unknown == [], "add them to gyre_hpc/observability/kinds.py and docs/formats.md"


def test_every_note_has_the_fields_that_readers_count_on():
    lacking = [
        (place, kind, required(kind) - names)
        for place, kind, names in noted()
        if kind in KINDS and names is not None and required(kind) - names
    ]
    assert lacking == []


def test_the_documentation_has_the_same_table():
    text = (ROOT / "docs" / "formats.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| ([^|]*) \|", text.partition("## Events")[2], re.MULTILINE))
    assert {kind: fields.strip() for kind, fields in rows.items()} == {kind: fields for kind, (fields, _) in KINDS.items()}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_has_a_meaning_and_fields_once(kind: str):
    fields, meaning = KINDS[kind]
    assert meaning
    assert len(fields.split()) == len(set(fields.replace("?", "").split()))
