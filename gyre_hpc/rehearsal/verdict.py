"""Was it as it must be? From the journal, the cells' own record and the workspace. Pure but for reading the workspace before.

Invariants looked at, whatever the scenario:
  - every call came to an answer, and its answer reached the harness;
  - no step of the script was asked for more often than its part is played: nothing was sampled twice;
  - no token was lost or resampled;
  - the ids in the journal are the ones the engine computed on (its own hash of them);
  - a harness that only extends its history never makes the gateway render it anew.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.machines.execution import HarnessEnd
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Record
from gyre_hpc.rehearsal.base import Moment, Op, Scenario
from gyre_hpc.rehearsal.dialects import Dialect
from gyre_hpc.rehearsal.director import Played
from gyre_hpc.rehearsal.script import marks_in, says_of
from gyre_hpc.trajectory.base import Call
from gyre_hpc.trajectory.fold import DamagedCall, JournalFold
from gyre_hpc.trajectory.tree import CallTree

_BRANCHES_FREELY = frozenset({"compaction", "helper"})
_ANSWERED = frozenset({"stop", "length", "tool_calls"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What one scenario left."""

    scenario: Scenario
    dialect: Dialect
    played: Played
    records: Sequence[Record]
    execution: str
    wrong_files: Sequence[str]
    counters: Mapping[str, int]
    faults: Sequence[str] = ()
    """What the shard itself noted as wrong about tokens."""


@dataclass(kw_only=True, slots=True)
class Outcome:
    """One line of the table, and why."""

    scenario: str
    problems: list[str] = field(default_factory=list)
    roles: Counter[str] = field(default_factory=Counter)
    branches: Counter[str] = field(default_factory=Counter)
    first_prompt: int = 0
    """Tokens of the first prompt of the main agent."""
    num_output: int = 0
    num_continued: int = 0
    """Calls that went on at another cell."""
    seconds: float = 0.0
    skipped: str = ""

    @property
    def passed(self) -> bool:
        return not self.problems and not self.skipped


def judge(evidence: Evidence, chat_format: ChatFormat) -> Outcome:
    """Everything that is not as it must be, one line each."""
    outcome = Outcome(scenario=evidence.scenario.name, seconds=evidence.played.seconds)
    problems = outcome.problems
    problems += _ended(evidence.played)
    problems += evidence.wrong_files
    problems += [f"{evidence.counters[name]} tokens {name}" for name in ("lost", "resampled") if evidence.counters.get(name)]
    problems += [f"the gateway noted: {fault}" for fault in evidence.faults]
    problems += _happened(evidence)
    fold = JournalFold()
    for record in evidence.records:
        fold.add(record)
    try:
        calls = fold.execution(evidence.execution)
        tree = CallTree(calls)
    except (DamagedCall, ValueError) as error:
        problems.append(f"journal: {error}")
        return outcome
    outcome.roles.update(call.role for call in calls)
    outcome.branches.update(call.branch for call in calls if call.branch)
    outcome.num_output = sum(len(call.output_ids) for call in calls)
    outcome.first_prompt = next((len(tree.context(call.id)) for call in calls if call.role == "main"), 0)
    outcome.num_continued = _num_continued(evidence.records)
    begun = {record.call for record in evidence.records if isinstance(record, CallBegin)}
    endless = sorted(begun - {call.id for call in calls})
    problems += [] if _keeps_broken_answers(evidence) else [f"{call} has no end" for call in endless]
    problems += [f"{call.id} ended {call.finish}, {'' if call.delivered else 'not '}delivered" for call in calls if not _is_good(call)]
    problems += _asked_again(evidence, calls, chat_format)
    problems += _not_computed_on(evidence, calls)
    problems += _roles(evidence, outcome)
    return outcome


def _ended(played: Played) -> list[str]:
    end: HarnessEnd = played.end
    if played.is_late:
        return [f"it did not end in time; last words: {end.tail[-300:]!r}"]
    if not end.finished:
        limit = f", broke its limit of {end.limit}" if end.limit else ""
        return [f"it ended with code {end.code}{limit}: {end.tail[-300:]!r}"]
    return []


def _is_good(call: Call) -> bool:
    return call.delivered and call.finish in _ANSWERED


def _asked_again(evidence: Evidence, calls: Sequence[Call], chat_format: ChatFormat) -> list[str]:
    asked: Counter[tuple[str, int]] = Counter()
    for call in calls:
        if call.role not in _BRANCHES_FREELY:
            asked.update(marks_in(chat_format.tokenizer.decode(call.output_ids.tolist()))[:1])
    problems = []
    for part in evidence.scenario.parts:
        times = evidence.scenario.times.get(part, 1)
        for step in range(len(says_of(evidence.scenario, part, evidence.dialect))):
            # Without names, the second of two equal agents gets the first one's answer when it asks after that was given.
            fewest = 1 if evidence.dialect.is_nameless else times
            if not fewest <= asked[part, step] <= times:
                problems.append(f"step {step} of {part} was answered {asked[part, step]} times, not {times}")
    return problems


def _not_computed_on(evidence: Evidence, calls: Sequence[Call]) -> list[str]:
    ends = {record.call: record for record in evidence.records if isinstance(record, CallEnd) and record.finish in _ANSWERED}
    seen = {(str(answer["rid"]).removeprefix("attempt/").rpartition("/")[0], answer["digest"]) for answer in evidence.played.seen}
    return [
        f"{call.id}: the engine computed on other ids" for call in calls if call.id in ends and (call.id, ends[call.id].digest) not in seen
    ]


def _happened(evidence: Evidence) -> list[str]:
    wanted = evidence.scenario.moments
    if tuple(evidence.played.moments) != wanted:
        return [f"happened: {[moment.value for moment in evidence.played.moments]}, not {[moment.value for moment in wanted]}"]
    leaves = {Moment.role_switch, Moment.cell_lost} & set(wanted)
    if leaves and not _num_continued(evidence.records):
        return ["no call went on at another cell"]
    if Moment.weights in wanted and not _has_two_versions(evidence.records):
        return ["no answer was sampled with two versions"]
    return []


def _has_two_versions(records: Sequence[Record]) -> bool:
    versions: dict[str, set[Version]] = {}
    for record in records:
        if isinstance(record, CallProgress):
            versions.setdefault(record.call, set()).update(span.version for span in record.spans)
    return any(len(found) > 1 for found in versions.values())


def _num_continued(records: Sequence[Record]) -> int:
    return len({record.call for record in records if isinstance(record, CallEnd) and len(record.cells) > 1})


def _keeps_broken_answers(evidence: Evidence) -> bool:
    """The harness takes what it got of a broken answer for a turn, and asks for the rest in a call of its own."""
    return bool(evidence.dialect.resume_asked) and Moment.gateway_restart in evidence.scenario.moments


def _roles(evidence: Evidence, outcome: Outcome) -> list[str]:
    scenario, ops = evidence.scenario, Counter(do.op for says in evidence.scenario.parts.values() for say in says for do in say.does)
    problems = []
    num_agents = ops[Op.delegate] + ops[Op.background]
    roots = outcome.branches["sub_agent"] + (outcome.branches["retry"] if evidence.dialect.is_nameless else 0)
    fewest = min(1, num_agents) if evidence.dialect.is_nameless else num_agents
    if bool(num_agents) != bool(outcome.roles["sub_agent"]) or not fewest <= roots <= num_agents:
        problems.append(f"{outcome.roles['sub_agent']} calls of {roots} sub-agents, there are {num_agents}")
    if scenario.window:
        if not outcome.roles["compaction"]:
            problems.append("nothing was compacted")
    else:
        usual = {"root", "sub_agent"} | ({"retry"} if evidence.dialect.is_nameless else set())
        usual |= {"edited_history"} if _keeps_broken_answers(evidence) else set()
        rest = {reason: num for reason, num in outcome.branches.items() if reason not in usual}
        if rest:
            problems.append(f"history that only grew was rendered anew: {rest}")
    return problems
