"""report.html is one whole page that fetches nothing."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gyre_hpc.report import charts
from gyre_hpc.report.html import render, write_report
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import summarize
from tests.unit.report.made_up_run import make_run

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Nesting(HTMLParser):
    """Fails on tags that do not close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(root: Path) -> str:
    story = read_story(root)
    return render(story, summarize(story))


def test_tags_nest_and_every_chart_is_there(tmp_path: Path):
    make_run(tmp_path)
    parser = Nesting()
    parser.feed(page(tmp_path))
    assert parser.open == []
    assert parser.seen.count("svg") == 4
    assert parser.seen.count("section") == 5
    assert "script" not in parser.seen


def test_nothing_is_fetched(tmp_path: Path):
    make_run(tmp_path)
    text = page(tmp_path)
    assert not re.search(r"(?:src|href)=|url\(|@import|https?://", text)
    assert "prefers-color-scheme: dark" in text


def test_every_chart_is_well_formed_and_stays_inside_its_frame(tmp_path: Path):
    make_run(tmp_path)
    for text in re.findall(r"<svg.*?</svg>", page(tmp_path), re.DOTALL):
        root = ElementTree.fromstring(text)
        width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
        for mark in root.iter("rect"):
            x, y, wide, tall = (float(mark.attrib[name]) for name in ("x", "y", "width", "height"))
            assert x >= 0 and y >= 0 and x + wide <= width + 1 and y + tall <= height + 1


def test_the_timeline_has_a_row_for_each_cell_and_a_mark_for_each_update(tmp_path: Path):
    make_run(tmp_path, num_cells=3, updates=2)
    text = page(tmp_path)
    assert [f">cell-{number}<" in text for number in range(4)] == [True, True, True, False]
    assert text.count('class="mark"') == 2
    assert "cell-1: train (waits_for_groups), 2.00 s from 16.0 s" in text


def test_text_of_the_run_cannot_become_markup(tmp_path: Path):
    folder = make_run(tmp_path)
    path = folder.events("controller", 1)
    path.write_bytes(path.read_bytes().replace(b'"waits_for_groups"', b'"<script>alert(1)</script>"'))
    assert "<script>" not in page(tmp_path)


def test_a_run_without_events_has_a_page(tmp_path: Path):
    folder = make_run(tmp_path)
    for path in folder.events_folder.iterdir():
        path.unlink()
    assert "Nothing to show yet" in page(tmp_path)


def test_it_is_written_into_the_run_folder(tmp_path: Path):
    folder = make_run(tmp_path)
    write_report(read_story(tmp_path))
    assert folder.report.read_text().startswith("<!doctype html>")
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.3), (0, 12), (3, 480), (0, 7e-5), (5, 5), (0, 1e6)])
def test_ticks_are_few_ordered_and_inside(low: float, high: float):
    values = charts.ticks(low, high, 5)
    assert values == sorted(values) and 1 <= len(values) <= 7
    assert all(low - 1e-12 <= value <= high + 1e-9 * max(high, 1) for value in values)
