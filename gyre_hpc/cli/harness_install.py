"""gyre harness install NAME [--version V] [--cache DIR]: fetch a harness into the cache."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="one of `gyre harness list`")
    parser.add_argument("--version", default="", metavar="V", help="one of `gyre harness list` (default: the one that gyre_hpc pins)")
    parser.add_argument("--cache", default="", metavar="DIR", help="folder to install below (default: that of paths.cache)")


def call(args: argparse.Namespace) -> int:
    from rich.console import Console

    from gyre_hpc.config.place import cache_of_command
    from gyre_hpc.errors import UserError
    from gyre_hpc.harnesses import create_harness
    from gyre_hpc.launch.harness_install import install

    harness = create_harness(args.name)
    version = args.version or harness.version
    harness.installation(version)  # a wrong version is said before anything is made
    cache = cache_of_command(args.cache)
    console = Console(highlight=False, soft_wrap=True)
    with console.status(f"installing {harness.name} {version}"):
        try:
            install(harness, version, cache, console.print)
        except OSError as error:
            raise UserError("--cache", str(cache), f"cannot be written ({error}); name a folder with free space") from error
    return 0
