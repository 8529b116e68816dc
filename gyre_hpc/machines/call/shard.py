"""State of one gateway shard that the steps of a call share, and the effects of the input being handled."""

from collections import Counter
from dataclasses import dataclass

from gyre_hpc.machines.base import Effect, Start
from gyre_hpc.machines.call.homes import Homes
from gyre_hpc.machines.call.journal_queue import JournalQueue
from gyre_hpc.machines.call.live import CallState, Conns, LiveCall
from gyre_hpc.machines.call.outbox import Outbox
from gyre_hpc.machines.call.over import Over
from gyre_hpc.machines.call.recorded import RecordedTree
from gyre_hpc.machines.call.routing import Routing
from gyre_hpc.machines.call.settings import GatewaySettings
from gyre_hpc.protocol.journal import Record


@dataclass(frozen=True, slots=True)
class EarlierTree:
    """What earlier attempts recorded of an execution."""

    attempts: tuple[int, ...]
    tree: RecordedTree


class Shard:
    """Plain state: rules live in arrival, sampling, progress, ending, delivery and restart."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.now = 0.0
        self.out: list[Effect] = []
        self.trees: dict[str, RecordedTree] = {}
        self.earlier: dict[str, EarlierTree] = {}
        """Executions of earlier attempts that nobody has asked for in this one."""
        self.ended = Over()
        self.live: dict[str, LiveCall] = {}
        self.conns = Conns()
        self.waiting: dict[str, None] = {}
        """Calls without a cell, oldest first."""
        self.routing = Routing()
        self.homes = Homes(settings.keep_kv)
        self.journal = JournalQueue()
        self.outbox = Outbox()
        self.tokens: Counter[str] = Counter()
        self.confirming: dict[str, list[str]] = {}
        """Connections that wait until what they asked of a call is durable."""
        self.has_token = False
        """Some engine gave a token in this life of the shard."""
        self.has_news = False
        """The batch machine should hear from us soon."""
        self._next_key = 0

    def emit(self, *effects: Effect) -> None:
        self.out.extend(effects)

    def start(self, kind: str, call: str, action: object) -> str:
        """Start an action under a key never used before; `split_key` takes it apart."""
        self._next_key += 1
        key = f"{kind}/{call}/{self._next_key}"
        self.emit(Start(key, action))
        return key

    def persist(self, record: Record) -> None:
        self.emit(*self.journal.add(record))

    def unix(self) -> float:
        """Unix seconds, for records."""
        return self.now + self.settings.clock_offset_s

    def count(self, execution: str, name: str, num: int) -> None:
        """Tokens by kind; training under the plain name, evaluation and warm start apart."""
        purpose = purpose_of(execution)
        self.tokens[name if purpose == "train" else f"{purpose}_{name}"] += num

    def tree(self, execution: str) -> RecordedTree:
        tree = self.trees.get(execution)
        if tree is None:
            tree = self.trees[execution] = RecordedTree()
        return tree

    def wait_for_cell(self, live: LiveCall) -> None:
        """The call needs a cell."""
        live.state = CallState.waiting
        self.waiting[live.call] = None
        self.has_news = True


def purpose_of(execution: str) -> str:
    """train, eval or warm."""
    return execution.partition("-")[0]


def split_key(key: str) -> tuple[str, str]:
    """Key of `Shard.start` -> (kind, call)."""
    kind, _, rest = key.partition("/")
    return kind, rest.rpartition("/")[0]
