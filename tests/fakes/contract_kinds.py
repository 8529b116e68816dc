"""A contract suite for one more kind: its test functions, as they stand, asked for that kind alone."""

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import pytest


def of_kind(kind: str, *suites: ModuleType) -> dict[str, Callable[..., Any]]:
    """Every test of these modules that has kinds, by name, parametrised with `kind` in their place."""
    tests: dict[str, Callable[..., Any]] = {}
    for suite in suites:
        for name, test in vars(suite).items():
            marks = list(getattr(test, "pytestmark", ()))
            kinds = [mark for mark in marks if mark.name == "parametrize" and mark.args[0] == "kind"]
            if not (name.startswith("test_") and isinstance(test, FunctionType) and kinds):
                continue
            assert name not in tests, f"two tests are named {name}"
            copy = FunctionType(test.__code__, test.__globals__, name, test.__defaults__, test.__closure__)
            copy.__annotations__, copy.__doc__ = test.__annotations__, test.__doc__
            instead = pytest.mark.parametrize("kind", [kind]).mark
            copy.pytestmark = [instead if mark in kinds else mark for mark in marks]  # type: ignore[attr-defined]
            tests[name] = copy
    return tests
