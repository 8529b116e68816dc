"""Recordings: nothing that belongs to somebody else, everything that is equal stays equal, what is written is read again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.errors import UserError
from gyre_hpc.rehearsal.recording import Recording, Scene, read_recording
from gyre_hpc.rehearsal.redaction import Redaction

LONG = "A long text of somebody else, with more than sixty characters in it, surely."
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=2, max_size=8), inner, max_size=4),
    max_leaves=20,
)


def test_long_texts_become_placeholders_equal_ones_equal() -> None:
    redaction = Redaction((), ())
    first, second = redaction.body({"system": [LONG, LONG + "!"], "messages": [{"content": LONG}]}), redaction.text(LONG)
    assert LONG not in str(first) and first["system"][0] == first["messages"][0]["content"] == second != first["system"][1]
    assert second.startswith(LONG[:24]) and f"<text {len(LONG)} #" in second


def test_descriptions_are_never_kept_and_names_always() -> None:
    tool = {"name": "Bash", "description": "Runs.", "parameters": {"properties": {"command": {"type": "string", "description": "What."}}}}
    kept = Redaction((), ()).body(tool)
    assert "Runs." not in str(kept) and "What." not in str(kept)
    assert (kept["name"], list(kept["parameters"]["properties"])) == ("Bash", ["command"])


def test_words_that_tell_calls_apart_stay_where_they_are() -> None:
    redaction = Redaction(("CRITICAL: text only", "write the XML."), ())
    kept = redaction.text(f"CRITICAL: text only. {LONG}")
    assert kept.startswith("CRITICAL: text only") and LONG not in kept
    assert redaction.text(f"{LONG} Now write the XML.").endswith("write the XML.")


def test_what_the_script_said_stays_also_within_the_words_of_others() -> None:
    said = "[[main 0]] " + "Point 1 of the plan is to go on quietly. " * 4
    redaction = Redaction((), (said,))
    assert redaction.text(said) == said and redaction.text(said[20:120]) == said[20:120]
    mixed = redaction.text(f"{LONG}\n{said}\n{LONG}")
    assert said in mixed and LONG not in mixed
    assert LONG not in redaction.text(f"{LONG} [[name]] is no mark")


@given(JSON)
def test_redaction_keeps_the_structure(value: object) -> None:
    redacted = Redaction((), ()).body(value)
    assert _shape(redacted) == _shape(value)


@given(st.lists(st.dictionaries(st.text(min_size=2, max_size=6), JSON, max_size=3), max_size=4))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, requests: list[dict[str, object]]) -> None:
    folder = tmp_path_factory.mktemp("recording")
    scene = Scene(
        scenario="tools", execution="train-0-0-0", requests=[*requests, *requests], events=[["begin", 0], ["end", 0], ["restart"]],
        answers=[[1, 2, 3], []], calls=[{"role": "main", "parent": None}],
    )  # fmt: skip
    recording = Recording(harness="shell_agent", version="1", tokenizer="t", scenes=[scene])
    path = recording.write(folder)
    content = path.read_bytes()
    assert read_recording(path) == recording
    assert recording.write(folder).read_bytes() == content


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "old.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"format": 0}\n'))
    with pytest.raises(UserError, match="record it anew"):
        read_recording(path)


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return {name: _shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    return type(value).__name__
