"""What a run needs of its surroundings, asked before anything is written: an answer at the door instead of processes that fail.

The processes ask again where they need it; this is for people.
"""

import os
from pathlib import Path

from gyre_hpc.addresses import address_here
from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.place import LONGEST_SCRATCH, above_scratch, cache_folder
from gyre_hpc.config.schema import Config, EngineKind, TrainerKind
from gyre_hpc.errors import UserError
from gyre_hpc.harnesses import create_harness
from gyre_hpc.harnesses.command import Command, words
from gyre_hpc.harnesses.options import options_of
from gyre_hpc.harnesses.place import installed_folder
from gyre_hpc.harnesses.shell_agent import ShellAgent
from gyre_hpc.launch.harness_install import is_installed
from gyre_hpc.launch.preflight.sandbox_trial import check_sandbox
from gyre_hpc.launch.server_surroundings import check_server
from gyre_hpc.ports import listen
from gyre_hpc.suites import create_scripted_agent, create_suite
from gyre_hpc.transport.mooncake_needs import check_mooncake

_GPUS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""One of them is there where a driver is: NVIDIA's, that of WSL, AMD's (whose NCCL is RCCL)."""


def check_surroundings(config: Config) -> None:
    """Raises UserError for the first thing that is missing for a run on this machine."""
    check_inputs(config)
    check_sandbox(config)
    _check_transport(config)
    if config.engine.kind is EngineKind.sglang:
        check_server(config)
    scratch = above_scratch(config)
    if not config.paths.scratch and len(os.fsencode(scratch)) > LONGEST_SCRATCH:
        raise UserError(
            "paths.scratch", str(scratch), f"TMPDIR is too long for sockets below it: at most {LONGEST_SCRATCH} bytes, e.g. /tmp"
        )
    _check_network(config)


def check_inputs(config: Config) -> None:
    """Raises UserError for the first thing that is missing wherever the run will be: suite, harness, model, what is imitated."""
    create_suite(config.suite, config.seed)
    check_harness(config)
    if config.engine.kind is not EngineKind.timed and config.model.path and not (Path(config.model.path) / "config.json").is_file():
        raise UserError("model.path", config.model.path, "name a Hugging Face folder, one that holds config.json")
    create_chat_format(config.model)  # after the folder that it may come from
    if config.warm_start.executions:
        create_scripted_agent(config.suite, config.warm_start.sloppiness)
        _check_imitated(config)


def _check_network(config: Config) -> None:
    address = address_here(config.network.interface)
    try:
        listen(address).close()
    except OSError as error:
        remedy = f"cannot listen on {address} ({error}); name ports that are free, or another address"
        raise UserError("network.interface", config.network.interface, remedy) from error


def check_harness(config: Config) -> None:
    """Raises UserError if the harness cannot do what is asked of it, or is not installed."""
    harness, options = create_harness(config.harness.name), options_of(config)
    harness.check(options)
    if harness.name == Command.name:
        _check_command(config)
    if options["context_tokens"] < harness.least_context:
        field = "harness.context_tokens" if config.harness.context_tokens else "model.max_context"
        remedy = f"the first request of {harness.name} alone takes more; give it {harness.least_context} and far above"
        raise UserError(field, options["context_tokens"], remedy)
    version = harness.version_of(options)
    folder = installed_folder(cache_folder(config), harness, version)
    if not is_installed(folder):
        which = "" if version == harness.version else f" --version {version}"
        where = f" --cache {config.paths.cache}" if config.paths.cache else ""
        raise UserError("harness.name", harness.name, f"not installed; run: gyre harness install {harness.name}{which}{where}")


def _check_transport(config: Config) -> None:
    """Asked for where it is not, NCCL fails each commit of several cells."""
    if config.transport.kv == "mooncake" and config.engine.kind is EngineKind.embedded:  # the pages of other engines do not travel so
        check_mooncake(config.transport.kv_protocol)
    is_used = config.trainer.kind is TrainerKind.embedded
    if config.transport.backend == "nccl" and is_used and not any(Path(device).exists() for device in _GPUS):
        raise UserError("transport.backend", "nccl", "there is no GPU here; use gloo")


def _check_imitated(config: Config) -> None:
    """The scripted agents answer prompts of one harness; with another one hours go by before that shows. Of a command nothing is known."""
    if config.harness.name not in (ShellAgent.name, Command.name):
        raise UserError(
            "warm_start.executions",
            config.warm_start.executions,
            f"scripted agents speak to {ShellAgent.name} only; with harness.name={config.harness.name} "
            "set warm_start.executions=0 warm_start.epochs=0",
        )


def _check_command(config: Config) -> None:
    """What the command line names by an absolute path must be here."""
    program = Path(words(config.harness.command)[0])
    if program.is_absolute() and not (program.is_file() and os.access(program, os.X_OK)):
        raise UserError("harness.command", str(program), "no program there that can be started; name one that is here")
    for path in config.harness.readable:
        if not Path(path).exists():
            raise UserError("harness.readable", path, "is not there; name files and folders that exist")
