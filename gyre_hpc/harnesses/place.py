"""Where installed harnesses are: one folder per name and version below paths.cache, shared by runs. Paths only, reads nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.harnesses.base import Harness, Installation, Installer, Start

MARKER = "INSTALLED"
"""File in an installed folder, written last."""


def installed_folder(cache: Path, harness: Harness, version: str) -> Path | None:
    """None for bundled ones. Raises UserError for a version the harness does not know."""
    if harness.installation(version).installer is Installer.bundled:
        return None
    return cache / "harnesses" / f"{harness.name}-{version}"


def installation_of(harness: Harness, options: Mapping[str, Any]) -> Installation:
    return harness.installation(harness.version_of(options))


def program_of(harness: Harness, start: Start) -> str:
    """What is started, as a path. `start.installed` must be set."""
    assert start.installed is not None, f"{harness.name} is started without its installation"
    return str(start.installed / installation_of(harness, start.options).program)
