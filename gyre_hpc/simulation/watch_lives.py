"""Ground truth of lives: whose records of an execution count, and that a life gets all that was durable when its shard began."""

from typing import TYPE_CHECKING

from gyre_hpc.machines.call.actions import Earlier
from gyre_hpc.protocol.journal import CallBegin, CallProgress, Replayed, TakenUp
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.process import Process

if TYPE_CHECKING:
    from gyre_hpc.simulation.watch_calls import CallFacts


class LifeTruth:
    """Of all executions."""

    def __init__(self) -> None:
        self._owner: dict[str, int] = {}
        """Execution -> the attempt that took it up last."""
        self._lives: dict[str, int] = {}
        self._inherited: dict[tuple[Process, str], dict[str, int]] = {}
        """(gateway, execution) -> durable tokens of each call of earlier attempts."""
        self._replayed: set[tuple[str, int]] = set()

    def inherits(self, process: Process, earlier: tuple[Earlier, ...]) -> None:
        """A gateway begins with this."""
        for one in earlier:
            tokens = {record.call: 0 for record in one.records if isinstance(record, CallBegin)}
            for record in one.records:
                if isinstance(record, CallProgress):
                    tokens[record.call] = record.start + len(record.output_ids) // 4
            self._inherited[process, one.execution] = tokens

    def is_over(self, process: Process, execution: str) -> bool:
        """Another attempt goes on with this execution: what this process does with it counts for nothing."""
        return process.attempt < self._owner.get(execution, 0)

    def taken_up(self, process: Process, record: TakenUp, calls: "dict[str, CallFacts]") -> None:
        """Cut what is known of its calls to what counts."""
        execution = record.execution
        if (process.attempt, record.life) <= (self._owner.get(execution, 0), self._lives.get(execution, 0)):
            raise Violation(f"{execution}: life {record.life} begins after life {self._lives.get(execution)}")
        is_first = (process, execution) in self._inherited and self._owner.get(execution) != process.attempt
        inherited = self._inherited.pop((process, execution), {})
        self._owner[execution], self._lives[execution] = process.attempt, record.life
        if bool(record.attempts) != is_first:
            raise Violation(f"{execution}: life {record.life} goes on from attempts {record.attempts}, there is {inherited}")
        if not is_first:
            return
        known = {one.call: one for one in record.known}
        if {call: one.num_output for call, one in known.items()} != inherited:
            raise Violation(f"{execution}: life {record.life} has {known}, durable was {inherited}")
        for call in [call for call, facts in calls.items() if facts.begin.execution == execution]:
            one, facts = known.get(call), calls[call]
            if one is None:
                del calls[call]
                continue
            if len(facts.ids) > one.num_output:
                del facts.ids[one.num_output :]
                facts.newest = None
            if not one.finish or (facts.end is not None and facts.end.num_output > one.num_output):
                facts.end = None

    def replayed(self, record: Replayed, facts: "CallFacts") -> None:
        """A call is asked for again: once in each life, with all that is durable of it."""
        key = (record.call, record.life)
        if key in self._replayed and self._owner.get(facts.begin.execution, 1) == 1:
            raise Violation(f"{record.call} is replayed twice in life {record.life}")
        self._replayed.add(key)
        if record.life != self._lives[facts.begin.execution]:
            raise Violation(f"{record.call} is replayed in life {record.life}, life {self._lives[facts.begin.execution]} goes on")
