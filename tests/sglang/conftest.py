"""Tests beside a real SGLang, on CPU: skipped where its environment is missing, failed where GYRE_REQUIRE says it must be there."""

import pytest

from gyre_hpc.config.engine_schema import SGLangConfig
from tests.fakes.sglang_here import sglang_config


@pytest.fixture
def sglang() -> SGLangConfig:
    return sglang_config()
