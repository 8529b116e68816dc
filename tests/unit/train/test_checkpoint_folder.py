"""Checkpoint folders are whole or not there."""

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gyre_hpc.errors import StorageFull, UserError
from gyre_hpc.models.checkpoint import load_checkpoint
from gyre_hpc.protocol.identity import Version
from gyre_hpc.train import checkpoint_folder as folders
from gyre_hpc.train.embedded import EmbeddedTrainer
from gyre_hpc.transport.snapshot_store import HostSnapshotStore
from tests.contracts.training_data import VOCAB, config, micro_batch, sequence


def _write(checkpoints: Path, step: int, text: str = "content") -> Path:
    folder = checkpoints / f"0.{step}"
    folders.write(folder, Version(0, step), {"a": lambda path: path.write_text(text) and None, "b": lambda path: path.touch()})
    return folder


def test_a_written_checkpoint_is_whole(tmp_path):
    folder = _write(tmp_path, 3)
    assert folders.check(folder)["version"] == "0.3"
    assert folders.newest_whole(tmp_path) == folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.3"]


def test_versions_are_ordered_by_number_not_by_text(tmp_path):
    for step in (9, 10, 2):
        _write(tmp_path, step)
    assert folders.newest_whole(tmp_path) == tmp_path / "0.10"


def test_a_newer_lineage_is_newer(tmp_path):
    _write(tmp_path, 9)
    folders.write(tmp_path / "1.2", Version(1, 2), {"a": lambda path: path.touch()})
    assert folders.newest_whole(tmp_path) == tmp_path / "1.2"


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "no marker", "broken marker"])
def test_loading_walks_back_over_damaged_ones(tmp_path, harm):
    _write(tmp_path, 1)
    newest = _write(tmp_path, 2)
    if harm == "flip":
        (newest / "a").write_text("c0ntent")
    elif harm == "cut":
        (newest / "a").write_text("cont")
    elif harm == "remove":
        (newest / "b").unlink()
    elif harm == "no marker":
        (newest / "DONE").unlink()
    else:
        (newest / "DONE").write_text('{"format": 1, "ver')
    assert folders.newest_whole(tmp_path) == tmp_path / "0.1"


def test_newer_ones_that_are_not_whole_are_named_with_the_reason(tmp_path):
    _write(tmp_path, 1)
    (_write(tmp_path, 2) / "a").write_text("harmed")
    (_write(tmp_path, 3) / folders.MARKER).unlink()
    told = []
    assert folders.newest_whole(tmp_path, lambda path, reason: told.append((path.name, reason))) == tmp_path / "0.1"
    assert [name for name, _ in told] == ["0.3", "0.2"]
    assert folders.MARKER in told[0][1] and "a is not what was written" in told[1][1]


def test_nothing_there_is_none(tmp_path):
    assert folders.newest_whole(tmp_path) is None
    assert folders.newest_whole(tmp_path / "absent") is None


class _Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("at", range(8))
def test_a_crash_at_any_step_leaves_the_older_one_to_load(tmp_path, monkeypatch, at):
    _write(tmp_path, 1)
    steps = 0

    def killing(call):
        def step(*arguments, **more):
            nonlocal steps
            steps += 1
            if steps > at:
                raise _Killed
            return call(*arguments, **more)

        return step

    monkeypatch.setattr(os, "fsync", killing(os.fsync))
    monkeypatch.setattr(os, "rename", killing(os.rename))
    try:
        _write(tmp_path, 2)
        is_done = True
    except _Killed:
        is_done = False
    monkeypatch.undo()
    found = folders.newest_whole(tmp_path)
    assert found == (tmp_path / "0.2" if (tmp_path / "0.2" / "DONE").exists() else tmp_path / "0.1")
    assert not is_done or found == tmp_path / "0.2"
    assert folders.newest_whole(tmp_path) == found
    assert _write(tmp_path, 2) == folders.newest_whole(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ESTALE])
def test_a_full_storage_is_named_and_leaves_nothing_behind(tmp_path, number):
    def put(path: Path) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(StorageFull, match=r"0\.2"):
        folders.write(tmp_path / "0.2", Version(0, 2), {"a": put})
    assert list(tmp_path.iterdir()) == []


def test_safetensors_own_error_for_a_full_disk_counts_too(tmp_path):
    def put(path: Path) -> None:
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")

    with pytest.raises(StorageFull):
        folders.write(tmp_path / "0.2", Version(0, 2), {"a": put})


def test_other_errors_rise_as_they_are(tmp_path):
    def put(path: Path) -> None:
        raise PermissionError(errno.EACCES, "no")

    with pytest.raises(PermissionError):
        folders.write(tmp_path / "0.2", Version(0, 2), {"a": put})


def test_pruning_keeps_the_newest(tmp_path):
    for step in range(5):
        _write(tmp_path, step)
    folders.prune(tmp_path, 2)
    assert [path.name for _, path in folders.list_marked(tmp_path)] == ["0.3", "0.4"]
    folders.prune(tmp_path, 0)
    assert len(folders.list_marked(tmp_path)) == 2


def test_a_checkpoint_is_a_hugging_face_folder_and_its_marker_names_the_manifest(tmp_path):
    trainer = EmbeddedTrainer(config(), vocab_size=VOCAB, store=HostSnapshotStore())
    trainer.init(Version(0, 0))
    trainer.wake(Version(0, 0))
    trainer.accumulate(micro_batch(sequence(20, 0)))
    trainer.apply(trainer.sum(), 1, Version(0, 1))
    trainer.save(tmp_path / "0.1", {"manifest_hash": "abc"})
    _, params = load_checkpoint(tmp_path / "0.1")
    assert all(torch.equal(params[name], tensor) for name, tensor in trainer._room().tensors().items())
    assert json.loads((tmp_path / "0.1" / "DONE").read_text())["manifest_hash"] == "abc"
    assert int(load_file(tmp_path / "0.1" / "optimizer.safetensors")["num_steps"]) == 1


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    trainer = EmbeddedTrainer(config(), vocab_size=VOCAB, store=HostSnapshotStore())
    trainer.init(Version(0, 0))
    trainer.save(tmp_path / "0.0", {})
    other = config()
    other.model.num_layers = 1
    with pytest.raises(UserError, match="another model"):
        EmbeddedTrainer(other, vocab_size=VOCAB, store=HostSnapshotStore()).load(tmp_path / "0.0", Version(1, 0))


def test_init_from_a_hugging_face_folder_takes_its_weights(tmp_path):
    first = EmbeddedTrainer(config(), vocab_size=VOCAB, store=HostSnapshotStore())
    first.init(Version(0, 0))
    first.save(tmp_path / "0.0", {})
    from_path = config()
    from_path.model.path, from_path.seed = str(tmp_path / "0.0"), 99
    second = EmbeddedTrainer(from_path, vocab_size=VOCAB, store=HostSnapshotStore())
    second.init(Version(0, 0))
    assert torch.equal(first._room().flat, second._room().flat)
