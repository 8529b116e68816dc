"""Facts for the batch machine. They follow from the journal's records in order, so a restarted shard numbers them alike.

FirstCall: with an execution's first durable progress record, whose first span is the version that served it, or with TakenUp, where an
earlier attempt recorded it. CallEnded: with each CallEnd; a call that was given up and taken up again ends twice, the second fact counts
only the tokens that came since.
"""

from collections import deque
from itertools import islice

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, ExecutionEnd, Record, Replayed, TakenUp
from gyre_hpc.protocol.to_batch import CallEnded, CallReplayed, ExecutionTakenUp, Fact, FirstCall, ReplayDiverged

MOST = 4096
"""Facts in a message: half a megabyte."""


def execution_of(call: str) -> str:
    """Execution of a call id."""
    return call.rpartition("/")[0]


class Outbox:
    """Unacknowledged facts, numbered from 0 within an attempt of the run."""

    def __init__(self) -> None:
        self.first_fact = 0
        self._facts: deque[Fact] = deque()
        self._begun: set[str] = set()
        self._reported: dict[str, dict[str, int]] = {}

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The oldest: a shard that was started again late in a long attempt has more of them than a message should hold."""
        return tuple(islice(self._facts, MOST))

    @property
    def has_more(self) -> bool:
        """Some are not among `facts`."""
        return len(self._facts) > MOST

    def acknowledge(self, acked: int) -> None:
        """Facts up to number `acked` are known."""
        while self._facts and self.first_fact <= acked:
            self._facts.popleft()
            self.first_fact += 1

    def observe(self, record: Record) -> bool:
        """A record is durable; True if that is news for the batch machine."""
        match record:
            case CallProgress(call=call, spans=spans):
                return self._progress(execution_of(call), spans[0].version)
            case CallEnd():
                self._ended(record)
                return True
            case TakenUp():
                self._taken_up(record)
                return True
            case Replayed(call=call, life=life, num_tokens=num_tokens, seconds=seconds):
                self._facts.append(CallReplayed(execution_of(call), life, num_tokens, seconds))
                return True
            case CallBegin(execution=execution, branch="diverged"):
                self._facts.append(ReplayDiverged(execution))
                return True
            case ExecutionEnd(execution=execution):
                self._begun.discard(execution)
                self._reported.pop(execution, None)
        return False

    def _taken_up(self, record: TakenUp) -> None:
        execution = record.execution
        if record.first_version is not None and execution not in self._begun:
            self._begun.add(execution)
            self._facts.append(FirstCall(execution, record.first_version))
        for one in record.known:
            if one.finish:
                self._reported.setdefault(execution, {})[one.call] = one.num_output
        self._facts.append(ExecutionTakenUp(execution, record.life, record.num_tokens, record.seconds))

    def _progress(self, execution: str, version: Version) -> bool:
        if execution in self._begun:
            return False
        self._begun.add(execution)
        self._facts.append(FirstCall(execution, version))
        return True

    def _ended(self, end: CallEnd) -> None:
        execution = execution_of(end.call)
        reported = self._reported.setdefault(execution, {})
        fact = CallEnded(
            execution=execution,
            call=end.call,
            num_sampled=end.num_output - reported.get(end.call, 0),
            continued_elsewhere=len(set(end.cells)) > 1,
            finish=end.finish,
            malformed=end.malformed > 0,
        )
        reported[end.call] = end.num_output
        self._facts.append(fact)
