"""What a disturbed run lost, from its files, and whether that is what is promised."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from gyre_hpc.observability.events import Event
from gyre_hpc.report.story import Story
from gyre_hpc.report.tokens import token_counts


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The last line."""

    kills: int
    tokens_lost: int
    tokens_resampled: int
    tokens_unreceived: int
    executions_unresolved: int
    orphans: int
    updates: int

    def broken(self, interval: int, updates: int) -> list[str]:
        """Promises that do not hold; `interval`: tokens that one killed process may cost (gateway.progress_tokens)."""
        said = [f"{name}={value}, promised 0" for name in _ZERO if (value := asdict(self)[name])]
        if self.tokens_unreceived > interval * self.kills:
            said.append(f"tokens_unreceived={self.tokens_unreceived}, promised at most {interval} for each of {self.kills} kills")
        if self.updates != updates:
            said.append(f"updates={self.updates}, asked for {updates}")
        return said


_ZERO = ("tokens_lost", "tokens_resampled", "executions_unresolved", "orphans")


def token_faults(story: Story, what: str) -> int:
    """Tokens lost or resampled, in training, evaluation and warm start. A counter dies with its shard, an event does not."""
    told = sum(int(event.fields["num"]) for event in story.of("token_fault") if event.fields["what"] == what)
    counted: Counter[str] = token_counts(story)
    return max(told, sum(num for name, num in counted.items() if name == what or name.endswith(f"_{what}")))


def unresolved(events: Sequence[Event]) -> set[str]:
    """Training executions that began and came to no end: neither ended nor begun again under another id."""
    began, over = set[str](), set[str]()
    for event in events:
        if event.kind == "execution_restarted":
            began.add(str(event.fields["execution"]))
            over.add(str(event.fields["instead_of"]))
        elif event.fields.get("purpose") == "train" and event.kind in ("execution_began", "execution_ended"):
            (began if event.kind == "execution_began" else over).add(str(event.fields["execution"]))
    return began - over


def state_at(events: Sequence[Event], name: str, unix_s: float) -> str:
    """What a process did at a moment: a cell's state and why it was idle, else the last thing it noted before."""
    last = ""
    for event in events:
        if event.time > unix_s:
            break
        if event.kind == "cell_state" and event.fields["cell"] == name:
            last = f"{event.fields['state']} {event.fields['reason']}".strip()
        elif event.process == name and not name.startswith("cell-"):
            last = f"after {event.kind}"
    return last or "no word yet"
