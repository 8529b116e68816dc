"""Bodies whose long list of messages grows: what is equal to the last body of the conversation, byte by byte, is not parsed again.

Comparing a megabyte costs a fiftieth of parsing it. Only what JSON says is trusted: a body is put together from two parts that are
both whole JSON, or it is parsed as any other, errors included. A memory of what can be made again.
"""

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from gyre_hpc.gateway.protocols.json_body import decode_object

MOST_BYTES = 256 << 20
"""Of all bodies kept together."""
LEAST_BYTES = 16 << 10
"""Shorter ones are parsed faster than found."""
_MOST_BRANCHES = 3
"""Conversations of one execution that grow side by side."""
_START = "\x00what was there before\x00"
"""Stands for the elements that are known."""
_STARTED = orjson.dumps(_START)


@dataclass(frozen=True, slots=True)
class _Known:
    prefix: bytes
    """A body up to behind the last element of the list."""
    before: dict[str, Any]
    """Fields before the list."""
    elements: list[Any]


class GrowingBodies:
    """decode_object with a memory per execution."""

    def __init__(self, field: str, most_bytes: int = MOST_BYTES, least_bytes: int = LEAST_BYTES) -> None:
        """`field`: the one that holds the list."""
        self._field, self._most_bytes, self._least_bytes = field, most_bytes, least_bytes
        self._opening = re.compile(b'"' + re.escape(field.encode()) + rb'"\s*:\s*(?=\[)')
        self._list: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct("Listed", [("list", msgspec.Raw)], rename={"list": field})
        )
        self._begin = b'{"' + field.encode() + b'":'
        self._known: OrderedDict[str, list[_Known]] = OrderedDict()
        """The execution used last is last, and so is the conversation of an execution."""
        self._num_bytes = 0

    def decode(self, execution: str, body: bytes) -> dict[str, Any]:
        """Raises RequestError for what is not one JSON object."""
        if len(body) < self._least_bytes:
            return decode_object(body)
        branches = self._known.get(execution, [])
        known = max((one for one in branches if body.startswith(one.prefix)), key=lambda one: len(one.prefix), default=None)
        found = self._grown(known, body) if known is not None else None
        value, new = found if found is not None else self._parsed(body)
        if new is not None:
            self._keep(execution, known, new)
        return value

    def _grown(self, known: _Known, body: bytes) -> tuple[dict[str, Any], _Known | None] | None:
        """None: it is not what it looks like."""
        rest = self._begin + b"[" + _STARTED + body[len(known.prefix) :]
        try:
            value = orjson.loads(rest)
        except orjson.JSONDecodeError:
            return None
        elements = value[self._field]
        if not isinstance(elements, list) or elements[:1] != [_START]:
            return None
        elements = value[self._field] = known.elements + elements[1:]
        size = self._size(rest, len(self._begin))
        if size is None:
            return None
        end = len(body) - len(rest) + len(self._begin) + size - 1
        return {**known.before, **value}, _Known(body[:end], known.before, elements)

    def _parsed(self, body: bytes) -> tuple[dict[str, Any], _Known | None]:
        value, opening = decode_object(body), self._opening.search(body)
        if opening is None:
            return value, None
        start = opening.end()
        try:
            before = orjson.loads(body[:start] + b"[]}")
        except orjson.JSONDecodeError:  # it stood somewhere within another field
            return value, None
        size = self._size(body, start)
        if size is None or not value[self._field]:
            return value, None
        del before[self._field]
        return value, _Known(body[: start + size - 1], before, value[self._field])

    def _size(self, data: bytes, start: int) -> int | None:
        """Bytes of the list that stands in `data` from `start` on; None when the field has another value."""
        try:
            text = bytes(self._list.decode(data).list)
        except (msgspec.DecodeError, RecursionError):  # it takes fewer levels
            return None
        return len(text) if text[-1:] == b"]" and data.startswith(text, start) else None

    def forget(self, execution: str) -> None:
        """It has ended."""
        self._num_bytes -= sum(len(one.prefix) for one in self._known.pop(execution, ()))

    def _keep(self, execution: str, before: _Known | None, known: _Known) -> None:
        """In place of the one that grew."""
        branches = self._known.setdefault(execution, [])
        self._num_bytes -= sum(len(one.prefix) for one in branches)
        branches[:] = [*(one for one in branches if one is not before), known][-_MOST_BRANCHES:]
        self._known.move_to_end(execution)
        self._num_bytes += sum(len(one.prefix) for one in branches)
        while self._num_bytes > self._most_bytes:
            _, oldest = self._known.popitem(last=False)
            self._num_bytes -= sum(len(one.prefix) for one in oldest)
