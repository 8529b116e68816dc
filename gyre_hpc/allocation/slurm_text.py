"""SLURM's `KEY=VALUE KEY=VALUE` records, as its configuration files and `scontrol show` write them.

A record begins with one of the given keys and may go on over several lines; keys count in any case, `#` begins a comment,
a backslash at a line's end joins the next one.
"""

import re
from collections.abc import Iterable, Iterator

_PAIR = re.compile(r"(\w+)=(\S*)")


def has_records(text: str, keys: Iterable[str]) -> bool:
    """Some line begins with `KEY=`."""
    return any(re.match(rf"(?:{'|'.join(keys)})\s*=", line.strip(), re.IGNORECASE) for line in text.splitlines())


def records(text: str, keys: Iterable[str]) -> Iterator[dict[str, str]]:
    """One dictionary per record, keys in lower case; lines before the first record are passed over."""
    first = {key.lower() for key in keys}
    record: dict[str, str] = {}
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        for key, value in _PAIR.findall(line.partition("#")[0]):
            if key.lower() in first:
                if record:
                    yield record
                record = {key.lower(): value}
            elif record:
                record.setdefault(key.lower(), value)
    if record:
        yield record
