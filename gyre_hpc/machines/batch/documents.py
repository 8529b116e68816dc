"""Numbered documents: sent when their content changes, and again until the receiver says that it has seen the number."""

from collections.abc import Callable
from typing import Any

from gyre_hpc.machines.base import Effect, Send


class Document:
    """What one receiver should know."""

    def __init__(self, to: str, base: int) -> None:
        self._to = to
        self.number = base
        self._content: Any = None
        self._sent_at = -1e18

    def update(self, now: float, content: Any, stamp: Callable[[Any, int], Any], seen: int, resend_s: float) -> list[Effect]:
        """Send `stamp(content, number)` if content changed, or if `number` is unseen since resend_s."""
        if content != self._content:
            self._content = content
            self.number += 1
        elif seen >= self.number or now - self._sent_at < resend_s:
            return []
        self._sent_at = now
        return [Send(self._to, stamp(content, self.number))]

    def renew(self, now: float, stamp: Callable[[Any, int], Any], period_s: float) -> list[Effect]:
        """Send again, unchanged, for a receiver whose lease on it runs out."""
        if self._content is None or now - self._sent_at < period_s:
            return []
        self._sent_at = now
        return [Send(self._to, stamp(self._content, self.number))]
