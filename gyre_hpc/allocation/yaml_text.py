"""YAML of ours: a mapping of lists, read without trusting it."""

from typing import Any

import yaml  # type: ignore[import-untyped,unused-ignore]

from gyre_hpc.errors import UserError


def entries(text: str, key: str, allowed: frozenset[str], field: str) -> list[dict[str, Any]]:
    """The list of mappings under `key`. Raises UserError for anything else, an unknown key in an entry included."""
    try:
        read = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(field, text[:40], f"cannot be read as YAML ({' '.join(str(error).split())[:120]})") from error
    found = read.get(key) if isinstance(read, dict) else None
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise UserError(field, text[:40], f"holds no list `{key}:`; give YAML with one, or what scontrol prints")
    for number, entry in enumerate(found):
        for name in entry:
            if name not in allowed:
                raise UserError(f"{field} {key}[{number}].{name}", entry[name], f"is unknown; an entry has {', '.join(sorted(allowed))}")
    return found


def text_of(entry: dict[str, Any], name: str, field: str, default: str = "") -> str:
    """A word or a list of words (then joined by commas)."""
    value = entry.get(name, default)
    if isinstance(value, list) and all(isinstance(word, str | int) for word in value):
        return ",".join(str(word) for word in value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(f"{field}.{name}", value, "give a word, or a list of words")
    return str(value)
