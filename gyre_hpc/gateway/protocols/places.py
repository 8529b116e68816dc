"""Errors at places deep inside a request: the place is put together on the way up, because histories have thousands of blocks
and few errors."""

from collections.abc import Callable, Iterable
from typing import Any


class Misplaced(Exception):
    """Something is wrong at a place. Each protocol writes the place and the reason in its own manner."""

    def __init__(self, what: str, *place: str | int, code: str = "invalid_request") -> None:
        super().__init__(what)
        self.what, self.place, self.code = what, place, code

    def within(self, *place: str | int) -> "Misplaced":
        """The same error, seen from further out."""
        return Misplaced(self.what, *place, *self.place, code=self.code)


def each(read: Callable[[Any], None], entries: Iterable[Any], first: int = 0) -> None:
    """Read every entry, which must be an object; an error gets the entry's number, counted from `first`."""
    place = -1
    try:
        for place, entry in enumerate(entries, first):  # noqa: B007
            if not isinstance(entry, dict):
                raise Misplaced("Input should be an object")
            read(entry)
    except Misplaced as error:
        raise error.within(place) from None


def missing(value: Any, kind: str) -> str:
    """Reason why `value` is not the `kind` it should be."""
    return "Field required" if value is None else f"Input should be {kind}"


def string(entry: dict[str, Any], name: str) -> str:
    """Raises Misplaced when this field is no string."""
    value = entry.get(name)
    if isinstance(value, str):
        return value
    raise Misplaced(missing(value, "a valid string"), name)
