"""A checkpoint that is passed over is told to people: updates that were made are made again."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.control.checkpoints import Checkpoints
from gyre_hpc.machines.batch.actions import FindCheckpoint
from gyre_hpc.protocol.identity import Version
from gyre_hpc.train import timed_checkpoint


def test_a_damaged_newest_checkpoint_is_an_alarm_and_the_older_one_is_found(tmp_path: Path):
    folder = RunFolder(tmp_path)
    for step in (1, 2):
        timed_checkpoint.save(folder.checkpoints / f"0.{step}", Version(0, step), {"update": step - 1})
    (folder.checkpoints / "0.2" / "state.json").write_text("{}")
    notes: list[tuple[str, Mapping[str, Any]]] = []

    async def find() -> Any:
        found = await Checkpoints(folder, tmp_path / "cached", lambda kind, fields: notes.append((kind, fields))).find(
            "key", FindCheckpoint(), lambda _: None
        )
        await asyncio.sleep(0)
        return found

    assert asyncio.run(find()).version == Version(0, 1)
    assert [(kind, fields["what"]) for kind, fields in notes] == [("alarm", "checkpoint 0.2 is not used")]
    assert "state.json is not what was written" in notes[0][1]["reason"]
