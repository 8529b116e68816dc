"""Parts that a machine may lack: skipped where they are missing, failed where everything is meant to be there."""

import os

import pytest


def need(part: str, problem: str) -> None:
    """Skip the test when `problem` is not empty. With GYRE_REQUIRE=all, or naming the part, it fails instead."""
    if not problem:
        return
    required = os.environ.get("GYRE_REQUIRE", "")
    if required == "all" or part in required.split(","):
        pytest.fail(f"{part} is required here (GYRE_REQUIRE={required}) but missing: {problem}")
    pytest.skip(f"{part}: {problem}")
