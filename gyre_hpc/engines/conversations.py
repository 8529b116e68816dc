"""Which conversations have KV here: the newest call of each, and the last full page of its chain (page_table.py).

A conversation is a chain of calls of one execution, each of which begins with the last one's tokens. It is called by its
newest call: one that runs through the last page of an older call of its execution takes that one's place. When the last
page goes, the conversation is as long as what is left.

Invariants: every conversation ends in a page that can be found; there are at most `limit`, the least recently used go
first; one that is being computed is not dropped for another one's sake.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence


class ConversationBook:
    """limit: of conversations, not of pages."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tips: OrderedDict[str, bytes] = OrderedDict()
        """Key of the last full page by call; last used last."""
        self._at: dict[bytes, list[str]] = {}
        """Calls that end in a page."""
        self._live: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tips)

    def tips(self) -> list[tuple[str, bytes]]:
        """(call, key of its last page), the most recently used first."""
        return list(reversed(self._tips.items()))

    def tip(self, call: str) -> bytes | None:
        return self._tips.get(call)

    def is_live(self, call: str) -> bool:
        return self._live[call] > 0

    def begin(self, call: str) -> None:
        """The call is being computed now. Each begin has its end."""
        self._live[call] += 1

    def end(self, call: str) -> None:
        self._live[call] -= 1
        assert self._live[call] >= 0
        if not self._live[call]:
            del self._live[call]

    def reach(self, call: str, keys: Sequence[bytes]) -> None:
        """The call's chain goes on through the pages `keys`, and ends in the last of them. An empty name is nobody's."""
        if not call or not keys:
            return
        for key in keys:
            if key in self._at:
                self._supersede(call, key)
        self._leave(call)
        self._tips[call] = keys[-1]
        self._at.setdefault(keys[-1], []).append(call)
        if len(self._tips) > self._limit:
            self._leave(next(iter(self._tips)))

    def cut(self, key: bytes, parent: bytes) -> None:
        """The page `key` is gone: what ended in it ends in its parent now, or is gone with it."""
        for call in self._at.pop(key, ()):
            if parent:
                self._tips[call] = parent
                self._at.setdefault(parent, []).append(call)
            else:
                del self._tips[call]

    def forget(self) -> None:
        """The chains known so far will not be found again."""
        self._tips.clear()
        self._at.clear()

    def check(self) -> None:
        """Assert that both directions agree (for tests and an idle engine)."""
        assert {(call, key) for key, calls in self._at.items() for call in calls} == set(self._tips.items())
        assert len(self._tips) <= self._limit and all(count > 0 for count in self._live.values())

    def _supersede(self, call: str, key: bytes) -> None:
        execution = call.rpartition("/")[0]
        for other in list(self._at[key]):
            if other != call and not self.is_live(other) and other.rpartition("/")[0] == execution:
                self._leave(other)

    def _leave(self, call: str) -> None:
        key = self._tips.pop(call, None)
        if key is None:
            return
        calls = self._at[key]
        calls.remove(call)
        if not calls:
            del self._at[key]
