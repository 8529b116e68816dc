"""Ground truth of model calls: every token sampled once, journaled once, delivered in order and only when durable."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gyre_hpc.chat.base import Answer
from gyre_hpc.machines.call.actions import Earlier, EngineAttempt, Render, Reply, Say
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import (
    CallBegin,
    CallEnd,
    CallProgress,
    Delivered,
    ExecutionEnd,
    Forgotten,
    Record,
    Replayed,
    Stored,
    TakenUp,
    execution_of,
)
from gyre_hpc.protocol.tensors import pack_ids, unpack_ids
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.process import Process
from gyre_hpc.simulation.tokens import draw, parse
from gyre_hpc.simulation.watch_lives import LifeTruth

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation


@dataclass(slots=True, eq=False)
class CallFacts:
    """What the disk says of a call."""

    begin: CallBegin
    ids: list[int] = field(default_factory=list)
    newest: Version | None = None
    end: CallEnd | None = None
    prompt: bytes = b""
    is_delivered: bool = False
    broke_off: Render | None = None
    """The suffix that could not be rendered, so that it had to begin from scratch."""

    def answer(self) -> Answer:
        """What its durable tokens say."""
        return parse(self.ids, self.begin.sampling.stop)


class CallTruth:
    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self.calls: dict[str, CallFacts] = {}
        self.first_versions: dict[str, Version] = {}
        """Execution -> version of its first durable token."""
        self._said: dict[tuple[Process, str], str] = defaultdict(str)
        self._received: dict[tuple[Process, str], int] = {}
        """(gateway, call) -> tokens that it was given and took."""
        self._asked: Counter[tuple[str, str]] = Counter()
        self._begun: Counter[tuple[str, str]] = Counter()
        """(execution, request) -> how often clients asked for the first time, and calls that were made of it."""
        self._life = LifeTruth()
        self._cancelled: set[str] = set()
        self._rendering: dict[tuple[Process, str], Render] = {}
        """(gateway, key) -> what is being rendered."""
        self._unrendered: dict[tuple[Process, str], Render] = {}
        """(gateway, call) -> suffix that could not be rendered."""

    def inherits(self, process: Process, earlier: tuple[Earlier, ...]) -> None:
        """A gateway begins with what earlier attempts recorded."""
        self._life.inherits(process, earlier)

    def durable(self, process: Process, record: Record) -> None:
        if self._life.is_over(process, execution_of(record)):
            return
        match record:
            case TakenUp(execution=execution):
                self._life.taken_up(process, record, self.calls)
                mine = {call: facts for call, facts in self.calls.items() if facts.begin.execution == execution}
                self._cancelled -= mine.keys()
                for facts in mine.values():
                    facts.is_delivered = False
                if record.known or not mine:
                    self.first_versions.pop(execution, None)
                if record.first_version is not None:
                    self.first_versions[execution] = record.first_version
                self._sim.counts["lives"] += 1
            case Replayed(call=call):
                self._life.replayed(record, self.calls[call])
                self._sim.counts["replayed"] += 1
                self._sim.counts["tokens_saved"] += record.num_tokens
            case CallBegin(call=call):
                if call in self.calls:
                    raise Violation(f"call {call} begun twice")
                self.calls[call] = facts = CallFacts(record)
                facts.broke_off = self._unrendered.get((process, call))
                if record.branch == "template_drift" and (record.parent is not None or facts.broke_off is None):
                    raise Violation(f"{call} is a new branch, and no suffix of it failed to be rendered")
                self._is_asked_for(record)
            case CallProgress():
                self._progress(record)
            case CallEnd(call=call, num_output=num_output):
                facts = self.calls[call]
                if num_output != len(facts.ids):
                    raise Violation(f"{call} ended with {num_output} tokens, {len(facts.ids)} are durable")
                facts.end = record
                self._sim.counts["calls"] += 1
            case Delivered(call=call):
                if self.calls[call].end is None:
                    raise Violation(f"{call} delivered before its end is durable")
                self.calls[call].is_delivered = True
            case Stored(call=call, answer=answer):
                told = msgspec.msgpack.decode(answer, type=Answer)
                if told.content != self.calls[call].answer().content:
                    raise Violation(f"{call}: {told.content!r} is stored, {self.calls[call].answer().content!r} was sampled")
                self._sim.counts["stored"] += 1
            case ExecutionEnd() | Forgotten():
                pass

    def asks(self, execution: str, request: str) -> None:
        """A client sends a request that is not the repetition of one. If it has the words of one that was cancelled, it may go on
        from there."""
        self._asked[execution, request] += 1
        self._cancelled -= {call for call in self._cancelled if self._is_of(call, execution, request)}

    def _is_of(self, call: str, execution: str, request: str) -> bool:
        facts = self.calls.get(call)
        return facts is not None and (facts.begin.execution, facts.begin.request_hash) == (execution, request)

    def _is_asked_for(self, begin: CallBegin) -> None:
        key = begin.execution, begin.request_hash
        self._begun[key] += 1
        if self._begun[key] > self._asked[key]:
            raise Violation(f"{begin.call}: a repeated request became a call of its own ({self._begun[key]} of {self._asked[key]})")

    def renders(self, process: Process, key: str, render: Render) -> None:
        """A gateway has a prompt made, or what follows a recorded answer."""
        call = _call_of(key)
        suffix = self._unrendered.get((process, call))
        if suffix is not None and (render.ended is not None or render.messages[-len(suffix.messages) :] != suffix.messages):
            raise Violation(f"{call}: what is rendered from scratch is another conversation than the suffix that failed")
        self._rendering[process, key] = render

    def failed(self, process: Process, key: str) -> None:
        """An action of a gateway."""
        render = self._rendering.get((process, key))
        if render is not None and render.ended is not None:
            self._unrendered[process, _call_of(key)] = render

    def receives(self, process: Process, call: str, until: int) -> None:
        """A gateway took tokens of a call, up to this position."""
        self._received[process, call] = max(self._received.get((process, call), 0), until)

    def _progress(self, record: CallProgress) -> None:
        facts = self.calls[record.call]
        ids = unpack_ids(record.output_ids).tolist()
        if record.start != len(facts.ids):
            raise Violation(f"{record.call}: journaled at {record.start} after {len(facts.ids)} tokens (a position twice, or a hole)")
        key = facts.begin.sampling.key
        if ids != [draw(key, position) for position in range(record.start, record.start + len(ids))]:
            raise Violation(f"{record.call}: tokens from {record.start} are not what was sampled")
        if len(record.logprobs) != len(record.output_ids):
            raise Violation(f"{record.call}: tokens without log-probs")
        at = record.start
        for span in record.spans:
            if span.start != at or span.end <= span.start:
                raise Violation(f"{record.call}: spans {record.spans} do not cover tokens from {record.start}")
            if facts.newest is not None and span.version < facts.newest:
                raise Violation(f"{record.call} goes on at older weights: {span.version} after {facts.newest}")
            facts.newest, at = span.version, span.end
        facts.ids += ids
        if at != len(facts.ids):
            raise Violation(f"{record.call}: spans {record.spans} end before the tokens do")
        self.first_versions.setdefault(facts.begin.execution, record.spans[0].version)
        self._sim.counts["tokens"] += len(ids)

    def attempts(self, process: Process, attempt: EngineAttempt) -> None:
        """A gateway asks an engine."""
        if self._life.is_over(process, attempt.call.rpartition("/")[0]):
            return
        if attempt.call in self._cancelled:
            raise Violation(f"{attempt.call}: goes on after it was cancelled")
        key = attempt.sampling.key
        so_far = pack_ids([draw(key, position) for position in range(attempt.position)])
        prompt = b"".join(attempt.prompt)
        if not prompt.endswith(so_far):
            raise Violation(f"{attempt.call}: goes on from other tokens than were sampled")
        facts = self.calls.get(attempt.call)
        if facts is None:
            return
        context = prompt[: len(prompt) - len(so_far)]
        if facts.prompt and facts.prompt != context:
            raise Violation(f"{attempt.call}: its prompt changed")
        facts.prompt = context
        if attempt.position < self._received.get((process, attempt.call), 0):
            raise Violation(f"{attempt.call}: goes on at {attempt.position}, {self._received[process, attempt.call]} tokens were received")
        if attempt.position < len(facts.ids):
            raise Violation(f"{attempt.call}: samples position {attempt.position} again, {len(facts.ids)} are durable")
        if attempt.position + attempt.max_new_tokens != attempt.sampling.max_new_tokens:
            raise Violation(f"{attempt.call}: its budget changed")

    def says(self, process: Process, say: Say) -> None:
        if self._life.is_over(process, say.call.rpartition("/")[0]):
            return
        text = self._said[process, say.conn] = self._said[process, say.conn] + say.text
        facts = self.calls.get(say.call)
        if facts is None or not facts.answer().content.startswith(text):
            raise Violation(f"{say.call}: a client is told text that is not durable")

    def replies(self, process: Process, reply: Reply) -> None:
        if self._life.is_over(process, reply.call.rpartition("/")[0]):
            return
        facts = self.calls.get(reply.call)
        if facts is None or facts.end is None or facts.end.finish != reply.finish:
            raise Violation(f"{reply.call}: answered before its end is durable")
        text = reply.answer.content
        if not text.startswith(self._said.pop((process, reply.conn), "")):
            raise Violation(f"{reply.call}: what was said is no beginning of the answer {text!r}")
        if text != facts.answer().content:
            raise Violation(f"{reply.call}: the answer {text!r} is not what was sampled")

    def answered(self, call: str, text: str, tool_calls: tuple[str, ...]) -> None:
        """A client has its answer."""
        facts = self.calls[call]
        answer = facts.answer()
        if text != answer.content:
            raise Violation(f"{call}: the client got {text!r}, sampled was {answer.content!r}")
        num_calls = len(answer.tool_calls) + len(answer.malformed)
        if len(tool_calls) != num_calls or facts.end is None or facts.end.tool_calls != tool_calls:
            raise Violation(f"{call}: the client got other tool calls than recorded")
        if facts.end.malformed != len(answer.malformed) or facts.end.malformed_spans != tuple(
            (bad.start, bad.end) for bad in answer.malformed
        ):
            raise Violation(f"{call}: malformed calls are not recorded as they are")
        self._sim.counts["answers"] += 1

    def cancelled(self, call: str) -> None:
        """A client was told that a call is given up: nobody goes on with it by himself."""
        self._cancelled.add(call)
        self._sim.counts["cancelled"] += 1

    def continued(self, call: str, previous: str) -> None:
        """A client that went on from a stored answer has its own."""
        facts = self.calls[call]
        parent = previous if facts.broke_off is None else None
        if facts.begin.parent != parent:
            raise Violation(f"{call} goes on from {facts.begin.parent}, asked for was {previous}, right is {parent}")
        self._sim.counts["continued" if parent else "broken_off"] += 1

    def left_nothing(self, executions: Iterable[str]) -> None:
        """These executions are said to have nothing to be trained on."""
        those = set(executions)
        for call, facts in self.calls.items():
            if facts.is_delivered and facts.ids and facts.begin.execution in those:
                raise Violation(f"{call} was delivered with {len(facts.ids)} tokens, and its execution is said to have left none")


def _call_of(key: str) -> str:
    """`render/<call>/<n>`"""
    return key.partition("/")[2].rpartition("/")[0]
