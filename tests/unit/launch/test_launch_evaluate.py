"""gyre eval: a run with nothing to train."""

from pathlib import Path

import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config, PathsConfig, WarmStartConfig
from gyre_hpc.config.stored import store_config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.evaluate import evaluation_of, main


def test_only_the_evaluation_after_the_last_update_is_left():
    given = Config(paths=PathsConfig(run="/run"), warm_start=WarmStartConfig(executions=9))
    config = evaluation_of(given, Path("/run/checkpoints/0.7"), Path("/run/evaluations/0.7"), 33)
    assert (config.algo.updates, config.evaluation.before, config.evaluation.after, config.evaluation.tasks) == (7, False, True, 33)
    assert config.warm_start.executions == 0 and config.paths.run == "/run/evaluations/0.7"
    assert given.algo.updates == 12 and given.paths.run == "/run", "the run's own configuration stays as it is"


def test_a_checkpoint_that_is_not_there_is_refused_before_anything_is_written(tmp_path: Path):
    store_config(Config(), RunFolder(tmp_path).config)
    with pytest.raises(UserError, match="checkpoint"):
        main(str(tmp_path))
    with pytest.raises(UserError, match="checkpoint"):
        main(str(tmp_path), checkpoint="../x")
    (tmp_path / "checkpoints" / "0.1").mkdir(parents=True)
    (tmp_path / "checkpoints" / "0.1" / "DONE").touch()
    with pytest.raises(UserError, match="--tasks=-1"):
        main(str(tmp_path), checkpoint="0.1", tasks=-1)
    assert not (tmp_path / "evaluations").exists()
    with pytest.raises(UserError, match="RUN"):
        main(str(tmp_path / "nothing"))
