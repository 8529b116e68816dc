"""What comes from elsewhere while steps go on: the snapshot to pull, the micro-batches to fetch.

Both may be stopped at any time, as they change nothing but what is at hand; a failed try is repeated by timer.
"""

from gyre_hpc.machines.base import CancelTimer, Effect, SetTimer, Start, Stop
from gyre_hpc.machines.cell.actions import FetchMicroBatch, PullSnapshot
from gyre_hpc.machines.cell.state import State
from gyre_hpc.machines.cell.switch import from_sources, target_version
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_cell import Lease, Order

FETCH_DEADLINE, FETCH_RETRY = "fetch_deadline", "fetch_retry"
PULL_DEADLINE, PULL_RETRY = "pull_deadline", "pull_retry"


class Supply:
    """One pull and one fetch at a time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._count = 0
        self._pull_key = ""
        self._pulling: Version | None = None
        self._pull_trouble = ""

    @property
    def trouble(self) -> str:
        return self._pull_trouble or self._state.fetched.trouble

    def advance(self, order: Order) -> list[Effect]:
        return self._pull(order) + self._fetch(order)

    def timer(self, key: str) -> list[Effect] | None:
        """None if the timer is not ours."""
        fetched = self._state.fetched
        match key:
            case _ if key == FETCH_RETRY:
                fetched.trouble = ""
            case _ if key == PULL_RETRY:
                self._pull_trouble = ""
            case _ if key == FETCH_DEADLINE:
                return [Stop(fetched.key), *(self.failed(fetched.key, "missed its deadline") or [])] if fetched.key else []
            case _ if key == PULL_DEADLINE:
                return [Stop(self._pull_key), *(self.failed(self._pull_key, "missed its deadline") or [])] if self._pull_key else []
            case _:
                return None
        return []

    def finished(self, key: str) -> str:
        """`pull` or `fetch` if `key` is one, else empty."""
        fetched = self._state.fetched
        if self._pulling is not None and key == self._pull_key:
            self._state.body.store.add(self._pulling)
            self._pull_key, self._pulling = "", None
            return "pull"
        if fetched.lease is not None and key == fetched.key:
            fetched.ready[fetched.lease.id] = fetched.lease.num_tokens
            fetched.key, fetched.lease = "", None
            return "fetch"
        return ""

    def failed(self, key: str, reason: str) -> list[Effect] | None:
        """None if `key` is not ours."""
        retry_s, fetched = self._state.settings.retry_s, self._state.fetched
        if self._pulling is not None and key == self._pull_key:
            self._pull_trouble = f"pull of snapshot {self._pulling}: {reason}"
            self._pull_key, self._pulling = "", None
            return [CancelTimer(PULL_DEADLINE), SetTimer(PULL_RETRY, retry_s)]
        if fetched.lease is not None and key == fetched.key:
            fetched.trouble = f"fetch of micro-batch {fetched.lease.id}: {reason}"
            fetched.key, fetched.lease = "", None
            return [CancelTimer(FETCH_DEADLINE), SetTimer(FETCH_RETRY, retry_s)]
        return None

    def _pull(self, order: Order) -> list[Effect]:
        state = self._state
        version = target_version(order, state.body, state.done)
        wanted = version if version is not None and version not in state.body.store and from_sources(order, version) else None
        effects: list[Effect] = []
        if self._pulling is not None and self._pulling != wanted:
            effects.append(Stop(self._pull_key))
            self._pull_key, self._pulling = "", None
        if wanted is None:
            self._pull_trouble = ""
        if wanted is None or self._pulling is not None or self._pull_trouble:
            return effects
        self._pull_key, self._pulling = self._key("pull"), wanted
        deadline_s = state.settings.pull_deadline_s
        pull = PullSnapshot(version=wanted, sources=order.sources, deadline_s=deadline_s)
        return [*effects, SetTimer(PULL_DEADLINE, deadline_s), Start(self._pull_key, pull)]

    def _fetch(self, order: Order) -> list[Effect]:
        fetched, total = self._state.fetched, self._state.total
        fetched.drop_all_but(order.leases)
        effects: list[Effect] = []
        if fetched.lease is not None and fetched.lease not in order.leases:
            effects.append(Stop(fetched.key))
            fetched.key, fetched.lease = "", None
        if not order.leases:
            fetched.trouble = ""
        if order.role is not Role.train or order.commit is not None or (total.stands_for(order) and total.closed):
            return effects
        begun = total.begun if total.stands_for(order) else set()
        lease = fetched.next_fetch(order, begun, self._state.settings.fetch_ahead)
        return effects if lease is None else [*effects, *self._start_fetch(lease)]

    def _start_fetch(self, lease: Lease) -> list[Effect]:
        fetched, deadline_s = self._state.fetched, self._state.settings.fetch_deadline_s
        fetched.key, fetched.lease = self._key("fetch"), lease
        fetch = FetchMicroBatch(id=lease.id, url=lease.url, keep=tuple(fetched.ready), deadline_s=deadline_s)
        return [SetTimer(FETCH_DEADLINE, deadline_s), Start(fetched.key, fetch)]

    def _key(self, kind: str) -> str:
        self._count += 1
        return f"{kind}#{self._count}"
