"""gyre engine install NAME [--device D] [--cache DIR]: make an engine's environment in the cache."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="sglang; the other engines come with gyre_hpc")
    parser.add_argument(
        "--device",
        default="auto",
        metavar="D",
        help="cpu, cuda, or auto: cuda where this machine has an NVIDIA GPU (default; on a login node name it)",
    )
    parser.add_argument("--cache", default="", metavar="DIR", help="folder to install below (default: that of paths.cache)")
    parser.epilog = "PIP_ARGS holds more arguments for pip, PYTHON another Python 3.11 to build with."


def call(args: argparse.Namespace) -> int:
    from rich.console import Console

    from gyre_hpc.config.engine_schema import Device, EngineKind
    from gyre_hpc.config.place import cache_of_command
    from gyre_hpc.errors import UserError
    from gyre_hpc.launch.engine_install import install

    if args.name not in EngineKind.__members__:
        raise UserError("NAME", args.name, f"engines are {', '.join(EngineKind.__members__)}")
    if args.device not in Device.__members__:
        raise UserError("--device", args.device, f"it is one of {', '.join(Device.__members__)}")
    if args.name != EngineKind.sglang.value:
        print(f"{args.name} comes with gyre_hpc; nothing to install")
        return 0
    cache = cache_of_command(args.cache)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    with console.status("installing sglang"):
        try:
            install(Device(args.device), cache, console.print)
        except OSError as error:
            raise UserError("--cache", str(cache), f"cannot be written ({error}); name a folder with free space") from error
    return 0
