"""gyre harness list: name, version, protocol, whether it is installed, size, licence."""

import argparse

_TITLES = ("NAME", "VERSION", "PROTOCOL", "INSTALLED", "SIZE", "LICENCE")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache", default="", metavar="DIR", help="folder of installed harnesses (default: that of paths.cache)")


def call(args: argparse.Namespace) -> int:
    from pathlib import Path

    from gyre_hpc.config.place import cache_of_command
    from gyre_hpc.harnesses import HARNESSES, create_harness
    from gyre_hpc.harnesses.base import Harness
    from gyre_hpc.harnesses.place import installed_folder
    from gyre_hpc.launch.fetching import disk_bytes
    from gyre_hpc.launch.harness_install import is_installed

    def row(harness: Harness, version: str, cache: Path) -> tuple[str, ...]:
        installation, folder = harness.installation(version), installed_folder(cache, harness, version)
        shown = f"{version} (default)" if version == harness.version and len(harness.versions) > 1 else version
        if folder is None:
            return harness.name, shown, harness.protocol, "comes along", "", "as gyre_hpc"
        there = is_installed(folder)
        size = f"{disk_bytes(folder) / 1e6:.0f} MB" if there else f"~{installation.megabytes} MB"
        return harness.name, shown, harness.protocol, "yes" if there else "no", size, installation.licence

    cache = cache_of_command(args.cache)
    rows = [_TITLES, *(row(harness, version, cache) for harness in map(create_harness, HARNESSES) for version in harness.versions)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    print(f"\nInstalled ones are in {cache / 'harnesses'}. One more: gyre harness install NAME{_again(args.cache)}")
    return 0


def _again(cache: str) -> str:
    return f" --cache {cache}" if cache else ""
