"""Start a run: `python launch.py [+experiment=NAME] [key=value ...]`, or go on with one: `python launch.py resume=RUN_FOLDER`."""

from gyre_hpc.config.door import hydra_main
from gyre_hpc.config.schema import Config
from gyre_hpc.report.watch.nearby import where_runs_are


def launch(config: Config) -> int:
    from gyre_hpc.launch import start  # after composing: --help needs none of it

    return start(config)


if __name__ == "__main__":
    hydra_main(launch, where_runs_are)()
