"""gyre engine list: name, version, device, whether it is installed, size, folder."""

import argparse

_TITLES = ("NAME", "VERSION", "DEVICE", "INSTALLED", "SIZE", "FOLDER")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache", default="", metavar="DIR", help="folder of installed engines (default: that of paths.cache)")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.config.engine_schema import EngineKind
    from gyre_hpc.config.place import cache_of_command
    from gyre_hpc.launch.engine_install import installations

    cache = cache_of_command(args.cache)
    rows: list[tuple[str, ...]] = [_TITLES]
    rows += [(kind.value, "", "", "comes along", "", "") for kind in EngineKind if kind is not EngineKind.sglang]
    rows += [("sglang", one.version, one.device, one.state, one.size, str(one.folder)) for one in installations(cache)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    again = f" --cache {args.cache}" if args.cache else ""
    print(f"\nOne more: gyre engine install NAME [--device cpu|cuda]{again}. What is unused may be deleted.")
    return 0
