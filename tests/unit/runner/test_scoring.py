"""The scorer: errors become answers, a hanging scorer is killed and replaced."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.runner.scorer import Scorer, ScoringFailed
from gyre_hpc.runner.scoring import Answer, Request, answer
from gyre_hpc.suites.base import Score, Suite, Task


class Breaking(Suite):
    name = "breaking"

    def task(self, split: str, index: int) -> Task:
        return Task(suite=self.name, split=split, index=index, family="f", instruction="i")

    def score(self, task: Task, workspace: Path) -> Score:
        if task.index:
            return Score(value=0.5, passed=False, parts={"a": 0.5})
        raise OSError("gone")


def ask(suite: Suite, index: int) -> Answer:
    return msgspec.json.decode(answer(suite, msgspec.json.encode(Request("train", index, "/w"))), type=Answer)


def test_a_score_is_told_whole():
    told = ask(Breaking(), 1)
    assert told.score is not None and (told.score.value, told.score.passed, told.score.parts) == (0.5, False, {"a": 0.5})


def test_an_error_is_an_answer_without_a_score():
    told = ask(Breaking(), 0)
    assert told.score is None and (told.error, told.reason) == ("OSError", "gone")
    assert msgspec.json.decode(answer(Breaking(), b"nonsense"), type=Answer).score is None


def test_a_cancelled_scoring_takes_the_process_along_and_the_next_gets_another(tmp_path: Path):
    store_config(Config(), RunFolder(tmp_path).config)
    (tmp_path / "w").mkdir()

    async def scenario() -> None:
        scorer = Scorer(tmp_path)
        assert (await scorer.score("train", 0, tmp_path / "w", lambda: None)).value == 0.0
        process = scorer._process
        assert process is not None
        os.kill(process.pid, 19)  # it hangs
        turn = asyncio.Event()
        hanging = asyncio.ensure_future(scorer.score("train", 0, tmp_path / "w", turn.set))
        await turn.wait()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert process.returncode == -9
        assert (await scorer.score("train", 0, tmp_path / "w", lambda: None)).value == 0.0
        with pytest.raises(ScoringFailed, match="FileNotFoundError"):
            await scorer.score("train", 0, tmp_path / "missing", lambda: None)
        await scorer.close()

    asyncio.run(scenario())
