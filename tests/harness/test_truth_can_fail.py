"""What the truth test rests on: edited and canned turns carry no loss, and a token in a foreign context would be found."""

from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.chat.hf_tokenizer import HfTokenizer
from gyre_hpc.protocol.journal import CallBegin
from gyre_hpc.protocol.tensors import unpack_ids
from gyre_hpc.rehearsal.company import TOKENIZER
from tests.harness.replay import PATHS, replay
from tests.harness.test_truth import READ, folded, found, outcome, stray, trained

WITH_TOOLS = sorted(name for name, recording in READ.items() if any(scene.scenario == "tools" for scene in recording.scenes))
FILLED = sorted(
    (name, scene.scenario) for name, recording in READ.items() for scene in recording.scenes if scene.scenario in ("compaction", "overflow")
)


def changed(value: Any, old: str, new: str) -> Any:
    """The same JSON with `old` replaced in every text."""
    if isinstance(value, dict):
        return {name: changed(inner, old, new) for name, inner in value.items()}
    if isinstance(value, list):
        return [changed(inner, old, new) for inner in value]
    return value.replace(old, new) if isinstance(value, str) else value


def edit_last(requests: list[dict[str, Any]], old: str, new: str) -> None:
    last = next(request for request in reversed(requests) if request["path"] in PATHS)
    last["body"] = changed(last["body"], old, new)


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_turn_that_the_model_never_said_makes_a_branch_and_carries_no_loss(name: str, tmp_path: Path) -> None:
    """The ids of the second answer's tool call are gone from the last request: nothing proves any more whose turn it is."""
    recording, scene = found(name, "tools")
    second = f"call_{scene.execution}_{[call['role'] == 'main' for call in scene.calls].index(True) + 1}_"
    replayed = replay(scene, recording.harness, tmp_path, lambda requests: edit_last(requests, second, "call_of_somebody_"))
    after = outcome(replayed)
    assert after[-1]["branch"] == "edited_history" and after[:-1] == scene.calls[:-1]
    tree, admission = folded(replayed, scene.execution)
    sequences = trained(tree, admission, scene.execution)
    assert len(sequences) == len([call for call in scene.calls if call["branch"]]) + 1
    for ids, places in sequences:
        assert stray(ids, places, replayed.engine) == []
    # Each sampled token is trained once: the copy of the second answer in the new branch is not.
    assert sum(len(places) for _, places in sequences) == sum(map(len, replayed.engine.outputs.values()))


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_turn_in_other_words_is_known_by_its_calls_and_its_tokens_stay(name: str, tmp_path: Path) -> None:
    recording, scene = found(name, "tools")
    replayed = replay(scene, recording.harness, tmp_path, lambda requests: edit_last(requests, "I write a file.", "I wrote it."))
    assert outcome(replayed) == scene.calls
    begins = [record for record in replayed.records if isinstance(record, CallBegin)]
    tree, _ = folded(replayed, scene.execution)
    said = HfTokenizer(TOKENIZER).decode(tree.context(begins[-1].call).tolist())
    assert "I write a file." in said and "I wrote it." not in said


@pytest.mark.parametrize(("name", "scenario"), FILLED)
def test_a_summary_and_what_was_kept_beside_it_carry_no_loss_in_the_new_history(name: str, scenario: str, tmp_path: Path) -> None:
    recording, scene = found(name, scenario)
    replayed = replay(scene, recording.harness, tmp_path)
    begins = [record for record in replayed.records if isinstance(record, CallBegin)]
    roles = [begin.role for begin in begins]
    first = begins[next(place for place in range(roles.index("compaction"), len(roles)) if roles[place] == "main")]
    assert (first.branch, first.parent) == ("compaction", None)
    tree, admission = folded(replayed, scene.execution)
    assert "So far:" in HfTokenizer(TOKENIZER).decode(unpack_ids(first.suffix_ids).tolist())
    inside = next(
        (ids, places)
        for ids, places in trained(tree, admission, scene.execution)
        if ids[: len(tree.context(first.call))] == tree.context(first.call).tolist()
    )
    assert min(inside[1]) >= len(tree.context(first.call))


def test_a_token_in_a_foreign_context_is_found(tmp_path: Path) -> None:
    recording, scene = found("shell_agent-1", "tools")
    replayed = replay(scene, recording.harness, tmp_path)
    tree, admission = folded(replayed, scene.execution)
    ids, places = trained(tree, admission, scene.execution)[0]
    assert stray(ids, places, replayed.engine) == []
    assert stray(ids, [places[0] - 1, *places], replayed.engine) == [places[0] - 1]
    foreign = [ids[0] + 1, *ids[1:]]
    assert stray(foreign, places, replayed.engine) == places
