"""Scenarios of `gyre harness check` are documented by name."""

from pathlib import Path

from gyre_hpc.rehearsal.scenarios import SCENARIOS

_PAGE = Path(__file__).parents[3] / "docs" / "harnesses.md"


def test_the_page_of_harnesses_names_every_scenario() -> None:
    page = _PAGE.read_text()
    assert [scenario.name for scenario in SCENARIOS if f"`{scenario.name}`" not in page] == []
