"""The truth test: what real harnesses sent goes to a real gateway again, and every trained token stands in the context it was
generated in, token for token, by the engine's own record."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyre_hpc.chat.hf_tokenizer import HfTokenizer
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd
from gyre_hpc.protocol.tensors import unpack_floats, unpack_ids
from gyre_hpc.rehearsal.company import TOKENIZER
from gyre_hpc.rehearsal.recording import Recording, Scene, read_recording, tokenizer_digest
from gyre_hpc.rehearsal.script import MARK
from gyre_hpc.trajectory.admission import Admission, admit
from gyre_hpc.trajectory.fold import JournalFold
from gyre_hpc.trajectory.packing import sequences_of
from gyre_hpc.trajectory.tree import CallTree
from tests.harness.replay import RecordedEngine, Replayed, replay

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.jsonl.gz"))
READ = {path.name.removesuffix(".jsonl.gz"): read_recording(path) for path in RECORDINGS}
SCENES = [(name, scene.scenario) for name, recording in READ.items() for scene in recording.scenes]


def found(name: str, scenario: str) -> tuple[Recording, Scene]:
    recording = READ[name]
    return recording, next(scene for scene in recording.scenes if scene.scenario == scenario)


def folded(replayed: Replayed, execution: str) -> tuple[CallTree, Admission]:
    fold = JournalFold()
    for record in replayed.records:
        fold.add(record)
    tree = CallTree(fold.execution(execution))
    return tree, admit(tree, 100)


def trained(tree: CallTree, admission: Admission, execution: str) -> list[tuple[list[int], list[int]]]:
    """(ids, positions with weight) of every sequence that would be trained."""
    packed = sequences_of(execution, tree, admission, 1.0, Version())
    return [(unpack_ids(one.sequence.ids).tolist(), np.flatnonzero(unpack_floats(one.sequence.weights)).tolist()) for one in packed]


def stray(ids: list[int], places: list[int], engine: RecordedEngine) -> list[int]:
    """Trained places at which no answer of the engine stands in the very context it was given in."""
    good: set[int] = set()
    for call, prompt in engine.prompts.items():
        whole = prompt + engine.outputs[call]
        if ids[: len(prompt)] == prompt:
            same = next((place for place in range(len(prompt), min(len(ids), len(whole))) if ids[place] != whole[place]), None)
            good.update(range(len(prompt), same if same is not None else min(len(ids), len(whole))))
    return [place for place in places if place not in good]


def test_there_is_a_recording_of_every_harness() -> None:
    assert {recording.harness for recording in READ.values()} >= {
        "shell_agent", "claude_code", "codex", "qwen_code", "opencode", "mini_swe_agent",
    }  # fmt: skip
    assert {recording.tokenizer for recording in READ.values()} == {tokenizer_digest(TOKENIZER)}
    assert sum(path.stat().st_size for path in RECORDINGS) < 6_000_000


@pytest.mark.parametrize("name", READ)
def test_a_recording_holds_no_long_text_of_anybody_else(name: str) -> None:
    """Prompts belong to the makers of a harness: only what the script said, and what carries its marks, is there in full."""
    decode = HfTokenizer(TOKENIZER).decode
    for scene in READ[name].scenes:
        ours = "\0".join(decode(answer) for answer in scene.answers)
        for text in texts([request["body"] for request in scene.requests]):
            for line in text.split("\n"):
                assert len(line) <= 90 or "<text " in line or MARK.search(line) or line in ours or line.startswith("gyre1."), line


def texts(value: Any) -> list[str]:
    """All texts in a JSON value."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(("name", "scenario"), SCENES)
def test_every_trained_token_stands_in_the_context_it_was_generated_in(name: str, scenario: str, tmp_path: Path) -> None:
    recording, scene = found(name, scenario)
    replayed = replay(scene, recording.harness, tmp_path)
    engine, (tree, admission) = replayed.engine, folded(replayed, scene.execution)
    assert [replayed.statuses[number] for number in sorted(replayed.statuses)] == [
        request["status"] for number, request in enumerate(scene.requests) if number in replayed.statuses
    ]
    # The journal holds exactly what the engine saw and gave.
    for call in tree.calls:
        assert tree.context(call).tolist() == engine.prompts[call]
        assert tree.calls[call].output_ids.tolist() == engine.outputs[call]
    ends = {record.call: record.digest for record in replayed.records if isinstance(record, CallEnd) and record.finish != "abandoned"}
    assert {call: engine.digests[call] for call in ends} == ends
    # Every token that carries loss was generated right there; each one once.
    sequences = trained(tree, admission, scene.execution)
    for ids, places in sequences:
        assert stray(ids, places, engine) == []
    delivered = [call for call in tree.calls.values() if call.delivered]
    assert sum(len(places) for _, places in sequences) == sum(len(call.output_ids) for call in delivered) == admission.num_targets
    assert outcome(replayed) == scene.calls


def outcome(replayed: Replayed) -> list[dict[str, Any]]:
    """What became of each call, as a recording has it."""
    begins = [record for record in replayed.records if isinstance(record, CallBegin)]
    order = {begin.call: place for place, begin in enumerate(begins)}
    finish = {record.call: record.finish for record in replayed.records if isinstance(record, CallEnd)}
    return [
        {
            "role": begin.role,
            "branch": begin.branch,
            "parent": order[begin.parent] if begin.parent is not None else None,
            "finish": finish.get(begin.call, ""),
        }
        for begin in begins
    ]
