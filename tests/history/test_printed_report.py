"""The report on paper, printed by headless Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser_kit import browsing
from click.testing import CliRunner
from recorded import record
from trustfold.cli.report import report
from two_days import two_days

pytestmark = pytest.mark.slow

BEYOND = """() => [...document.querySelectorAll("main *")].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.width && box.right > document.documentElement.clientWidth + 1;
}).map((one) => one.outerHTML.slice(0, 120))"""
"""Elements that reach beyond the right edge."""

A4 = {"width": 703, "height": 1010}
"""Pixels of a page within its margins."""


def test_a_report_is_four_pages_of_a4(tmp_path: Path) -> None:
    """It says of which project and period it is, and nothing of it is cut off at an edge."""
    root, page = tmp_path / "shop" / ".trustfold" / "history", tmp_path / "report.html"
    record(root, two_days(), live=True)
    done = CliRunner().invoke(report, ["--html", str(page), "--history", str(root)])
    assert done.exit_code == 0, done.output
    with browsing() as browser:
        tab = browser.new_page(viewport=A4)
        tab.goto(page.as_uri())
        assert tab.title() == "What the agents' tools did in shop, 2026-01-05 to 2026-01-07"
        printed = tab.pdf(format="A4", prefer_css_page_size=True, print_background=True)
        tab.emulate_media(media="print")
        assert tab.evaluate(BEYOND) == []
        assert "Printed are the first 5 rows" in tab.inner_text("main")
    assert 2 <= len(re.findall(rb"/Type\s*/Page[^s]", printed)) <= 4
