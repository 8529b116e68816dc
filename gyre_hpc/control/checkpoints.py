"""Actions FindCheckpoint, FindWarmStart and StoreWarmStart: folders that were written by the core, and the shared cache."""

import asyncio
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.machines.batch import actions
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.train_groups import TrainGroups
from gyre_hpc.train.checkpoint_folder import newest_whole, read_marker, read_state


class Checkpoints:
    """Checkpoints of one run and its cached warm start."""

    def __init__(self, folder: RunFolder, cached: Path, note: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._folder, self._cached, self._note = folder, cached, note

    async def find(self, key: str, action: actions.FindCheckpoint, progress: Callable[[Any], None]) -> actions.Checkpoint | None:
        """Newest whole checkpoint of the run. One that is newer and not whole is told to people: its updates are made again."""
        loop = asyncio.get_running_loop()

        def passed_over(path: Path, reason: str) -> None:
            loop.call_soon_threadsafe(self._note, "alarm", {"what": f"checkpoint {path.name} is not used", "reason": reason})

        return await _in_thread(lambda: self._find(passed_over))

    async def find_warm(self, key: str, action: actions.FindWarmStart, progress: Callable[[Any], None]) -> actions.Checkpoint | None:
        """Take the cached warm start into the run folder, so that the run is whole by itself."""
        return await _in_thread(self._find_warm)

    async def store_warm(self, key: str, action: actions.StoreWarmStart, progress: Callable[[Any], None]) -> None:
        """Put the fitted checkpoint into the cache; the first of several runs that do so wins."""
        await _in_thread(lambda: _copy(self._folder.checkpoints / str(action.version), self._cached))

    def _find(self, passed_over: Callable[[Path, str], None]) -> actions.Checkpoint | None:
        path = newest_whole(self._folder.checkpoints, passed_over)
        return None if path is None else self._describe(path)

    def _find_warm(self) -> actions.Checkpoint | None:
        if newest_whole(self._cached.parent) is None:
            return None
        target = self._folder.checkpoints / self._cached.name
        _copy(self._cached, target)
        return self._describe(target)

    def _describe(self, path: Path) -> actions.Checkpoint:
        state, marker = read_state(path), read_marker(path)
        return actions.Checkpoint(
            folder=str(path.relative_to(self._folder.root)),
            version=Version.parse(path.name),
            update=int(state.get("update", -1)),
            manifest_hash=str(marker.get("manifest_hash", "")),
            consumed=TrainGroups.read(state.get("consumed", [])),
            counters=dict(state.get("counters", {})),
        )


async def _in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work)


def _copy(source: Path, target: Path) -> None:
    """Copy a whole checkpoint folder; it appears under its name at once or not at all."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.parent / f".{target.name}.{uuid.uuid4().hex}"
    shutil.copytree(source, aside)
    try:
        os.rename(aside, target)
    except OSError:
        # Another run was first.
        shutil.rmtree(aside, ignore_errors=True)
        if not target.exists():
            raise
