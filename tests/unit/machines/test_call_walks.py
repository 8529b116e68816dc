"""A walk that goes on from a kept one finds what a walk from the first turn finds, whatever began or ended in between."""

from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call.recorded import RecordedTree
from gyre_hpc.machines.call.turns import Turn, digest_turns
from gyre_hpc.machines.call.walks import Walks
from gyre_hpc.protocol.journal import CallBegin, CallEnd, Sampling
from gyre_hpc.protocol.tensors import pack_ids

EXECUTION = "train-0-0-0"
SAID = ("yes", "no")


class Talks:
    """Conversations over one tree. Answers are few: many contexts have equal ones."""

    def __init__(self) -> None:
        self.tree, self.messages, self.open = RecordedTree(), [[Message(role="user", content="go")]], list[tuple[str, int]]()

    def turns(self, place: int) -> tuple[Turn, ...]:
        return digest_turns(self.messages[place % len(self.messages)])

    def begin(self, place: int, num_dropped: int) -> None:
        """A call; with `num_dropped` on what was there before."""
        messages = self.messages[place % len(self.messages)]
        messages = messages[: max(1, len(messages) - num_dropped)]
        found = self.tree.find(digest_turns(messages), b"")
        name, parent = f"{EXECUTION}/{self.tree.next_ordinal}", found.parent.call if found.parent is not None else None
        begin = CallBegin(name, EXECUTION, parent, pack_ids([1]), "main", "", "", Sampling(), {}, "h", 0.0, context=found.context)
        self.tree.add(begin, found.opening)
        self.messages.append(list(messages))
        self.open.append((name, len(self.messages) - 1))

    def end(self, place: int, said: str, heard: str) -> None:
        """It answers; the client takes that for `heard`, and goes on."""
        if self.open:
            name, its = self.open.pop(place % len(self.open))
            answer = digest_turns([Message(role="assistant", content=said)])[0]
            self.tree.end(CallEnd(name, "stop", 1, 0, (), "", (), 0, 1.0, text=answer.text))
            self.messages[its] += [Message(role="assistant", content=heard), Message(role="user", content="on")]


said = st.sampled_from(SAID)
begins = st.tuples(st.just("begin"), st.integers(0, 5), st.integers(0, 3))
ends = st.tuples(st.just("end"), st.integers(0, 5), said, said)


@given(st.lists(begins | ends, max_size=30))
def test_a_kept_walk_changes_nothing(steps: list[tuple[str, int, int] | tuple[str, int, str, str]]) -> None:
    talks = Talks()
    for what, *rest in steps:
        getattr(talks, what)(*rest)
        for place in range(len(talks.messages)):
            found, kept = talks.tree.find(talks.turns(place), b""), talks.tree._walks
            talks.tree._walks = Walks()
            assert found == talks.tree.find(talks.turns(place), b"")
            talks.tree._walks = kept


def test_a_conversation_that_grows_is_walked_from_its_last_answer() -> None:
    talks = Talks()
    for _ in range(20):
        talks.begin(-1, 0)
        talks.end(0, "yes", "yes")
    looked: list[str] = []
    answer_in = talks.tree._answer_in

    def watched(context: str, turn: Turn) -> object:
        looked.append(context)
        return answer_in(context, turn)

    talks.tree._answer_in = watched  # type: ignore[method-assign, assignment]
    found = talks.tree.find(talks.turns(-1), b"")
    assert found.later == 40 and len(looked) == 1
    assert talks.tree.find(talks.turns(-1), b"") == found and len(looked) == 1
