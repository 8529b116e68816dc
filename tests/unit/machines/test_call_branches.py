"""Why a call begins a branch: several agents may share one thread name, compactions and helpers are no line of their own."""

import pytest

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call.recorded import RecordedTree
from gyre_hpc.machines.call.turns import digest_turns
from gyre_hpc.protocol.journal import CallBegin, CallEnd, Sampling
from gyre_hpc.protocol.tensors import pack_ids

EXECUTION = "train-0-0-0"


def system(text: str) -> Message:
    return Message(role="system", content=text)


def user(text: str) -> Message:
    return Message(role="user", content=text)


class Talk:
    """A tree that agents call one after the other; every answer is the name of its call."""

    def __init__(self, *, recalled: bool = False) -> None:
        self.tree = RecordedTree()
        self.recalled = recalled
        """Openings are not known, as after a restart."""

    def call(self, messages: list[Message], *, role: str = "main", thread: str = "") -> str:
        """Branch of the call; its answer is appended to `messages`."""
        found = self.tree.find(digest_turns(messages), b"")
        branch = self.tree.branches.label(found, role=role, thread=thread)
        name = f"{EXECUTION}/{self.tree.next_ordinal}"
        parent = found.parent.call if found.parent is not None else None
        begin = CallBegin(name, EXECUTION, parent, pack_ids([1]), role, thread, branch, Sampling(), {}, "h", 0.0, context=found.context)
        self.tree.add(begin, None if self.recalled else found.opening)
        answer = Message(role="assistant", content=f"answer {name}")
        turn = digest_turns([answer])[0]
        self.tree.end(CallEnd(name, "stop", 1, 0, (), "", (), 0, 1.0, text=turn.text))
        messages.append(answer)
        return branch


def test_two_agents_interleaved_on_one_thread_name_make_no_branches() -> None:
    talk = Talk()
    one, other = [system("A"), user("go")], [system("B"), user("go")]
    assert [talk.call(one), talk.call(other)] == ["root", "root"]
    for place in range(3):
        one.append(user(f"{place}"))
        other.append(user(f"{place}"))
        assert [talk.call(one), talk.call(other)] == ["", ""]


def test_what_follows_a_compaction_is_named_after_it_and_only_once() -> None:
    talk = Talk()
    main = [system("A"), user("go")]
    assert talk.call(main) == "root"
    assert talk.call([*main, user("summarise")], role="compaction") == ""
    fresh = [system("A"), user("summary")]
    assert talk.call(fresh) == "compaction"
    fresh.append(user("more"))
    assert talk.call(fresh) == ""
    assert talk.call([system("A"), user("another task")]) == "root"


def test_an_agent_with_a_system_prompt_of_its_own_is_no_compaction() -> None:
    talk = Talk()
    main = [system("A"), user("go")]
    talk.call(main)
    talk.call([system("summariser"), user("all of it")], role="compaction")
    assert talk.call([system("B"), user("help")]) == "root"
    assert talk.call([system("A"), user("summary")]) == "compaction"


def test_after_a_restart_what_follows_a_compaction_is_still_named_after_it() -> None:
    talk = Talk(recalled=True)
    main = [system("A"), user("go")]
    talk.call(main)
    talk.call([*main, user("summarise")], role="compaction")
    assert talk.call([system("A"), user("summary")]) == "compaction"


def test_a_main_line_goes_on_beside_a_compaction_and_a_helper_that_looked_at_it() -> None:
    talk = Talk()
    main = [system("A"), user("go")]
    talk.call(main)
    assert talk.call([*main, user("title?")], role="helper") == ""
    assert talk.call([*main, user("summarise")], role="compaction") == "compaction"
    main.append(user("on"))
    assert talk.call(main) == ""


def test_the_same_context_again_is_a_retry() -> None:
    talk = Talk()
    main = [user("go")]
    first = list(main)
    talk.call(main)
    assert talk.call(first) == "retry"
    main.append(user("on"))
    again = list(main)
    assert [talk.call(main), talk.call(again)] == ["", "retry"]


@pytest.mark.parametrize("edit", ["last", "first"])
def test_another_history_is_an_edited_one(edit: str) -> None:
    talk = Talk()
    main = [user("go")]
    talk.call(main)
    main.append(user("on"))
    talk.call(main)
    changed = [*main[:2], user("differently")] if edit == "last" else [user("Go"), *main[1:]]
    assert talk.call(changed) == "edited_history"


def test_a_sub_agent_is_one_wherever_it_begins() -> None:
    talk = Talk()
    main = [system("A"), user("go")]
    talk.call(main)
    assert talk.call([system("S"), user("help")], role="sub_agent") == "sub_agent"
    fork = [*main, user("look at it")]
    assert talk.call(fork, role="sub_agent") == "sub_agent"
    fork.append(user("further"))
    assert talk.call(fork, role="sub_agent") == ""
    main.append(user("on"))
    assert talk.call(main) == ""


def test_thinking_counts_only_in_turns_that_are_no_recorded_answers() -> None:
    talk = Talk()
    main = [user("go")]
    talk.call(main)
    kept = Message(role="assistant", content=main[1].content, reasoning="hm")
    found = talk.tree.find(digest_turns([user("go"), kept, user("on")]), b"")
    assert found.parent is not None and found.parent.call == f"{EXECUTION}/0"
    foreign = [Message(role="assistant", content="canned", reasoning=text) for text in ("", "hm")]
    contexts = {talk.tree.find(digest_turns([user("go"), turn]), b"").context for turn in foreign}
    assert len(contexts) == 2
