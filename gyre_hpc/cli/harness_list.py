"""gyre harness list: name, version, protocol, size, whether it is installed, licence."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache", default="", metavar="DIR", help="folder of installed harnesses (default: that of paths.cache)")


def call(args: argparse.Namespace) -> int:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from gyre_hpc.config.place import cache_folder
    from gyre_hpc.config.schema import Config, PathsConfig
    from gyre_hpc.harnesses import HARNESSES, create_harness
    from gyre_hpc.harnesses.base import Harness
    from gyre_hpc.harnesses.place import installed_folder
    from gyre_hpc.launch.harness_install import disk_bytes, is_installed

    def row(harness: Harness, version: str, cache: Path) -> tuple[str, ...]:
        installation, folder = harness.installation(version), installed_folder(cache, harness, version)
        shown = f"{version} (default)" if version == harness.version and len(harness.versions) > 1 else version
        if folder is None:
            return harness.name, shown, harness.protocol, "comes along", "", "Apache-2.0, ours"
        there = is_installed(folder)
        size = f"{disk_bytes(folder) / 1e6:.0f} MB" if there else f"~{installation.megabytes} MB"
        return harness.name, shown, harness.protocol, "yes" if there else "no", size, installation.licence

    cache = cache_folder(Config(paths=PathsConfig(cache=args.cache)))
    table = Table("name", "version", "protocol", "installed", "size", "licence", box=None, pad_edge=False)
    for harness in map(create_harness, HARNESSES):
        for version in harness.versions:
            table.add_row(*row(harness, version, cache))
    console = Console()
    console.print(table)
    console.print(
        f"\nInstalled harnesses are in {cache / 'harnesses'}. One more: gyre harness install NAME", soft_wrap=True, highlight=False
    )
    return 0
