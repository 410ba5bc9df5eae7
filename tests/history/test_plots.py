"""Plots are true to scale, and say what they leave out."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from trustfold.history.page import section
from trustfold.history.plots import BARS, COLUMNS, WIDTH, bars, heat, moment, spans, stacked
from trustfold.history.questions import Answer, Question

DAY = datetime(2026, 1, 5, tzinfo=UTC)


def rectangles(drawing: str) -> list[tuple[float, float]]:
    """Left edge and width of every rectangle."""
    return [(float(x), float(width)) for x, width in re.findall(r'<rect x="([\d.]+)"[^>]*? width="([\d.]+)"', drawing)]


def test_circuits_are_as_wide_as_they_were_long_open() -> None:
    """No width is a minimum: a second of a day is no pixel, and that is said."""
    rows = [
        ("a", DAY, DAY + timedelta(hours=12), "open"),
        ("a", DAY + timedelta(hours=18), DAY + timedelta(hours=24), "open"),
        ("b", DAY, DAY + timedelta(seconds=1), "open"),
    ]
    drawing = spans(rows)
    (_, half), (_, quarter), (_, second) = rectangles(drawing)
    assert abs(half - 2 * quarter) < 0.01
    assert abs(second * 12 * 3600 - half) < half / 10
    assert "1 spans are shorter than a pixel" in drawing


def test_days_without_failures_take_their_place() -> None:
    """The axis of time is linear."""
    days = [(date(2026, 1, day), "crash", 1) for day in (1, 2, 9)]
    (first, _), (second, _), (last, _) = rectangles(stacked(days))
    assert abs((last - first) - 8 * (second - first)) < 0.5
    assert last < WIDTH


def test_what_is_not_in_a_plot_is_said() -> None:
    """Rows and columns beyond those drawn, and rows beyond those asked for."""
    many = BARS + 3
    assert "3 more rows are not in the plot" in bars([(f"t{number}", "", number) for number in range(many)])
    cells = [(f"t{number}", f"m{column}", 0.5, 10) for number in range(many) for column in range(COLUMNS + 2)]
    assert "3 more rows are not in the plot" in heat(cells)
    assert "2 more columns are not in the plot" in heat(cells)
    lasting = [(f"k{number}", DAY, DAY + timedelta(hours=1), "open") for number in range(many)]
    assert "3 more rows are not in the plot" in spans(lasting)
    question = Question("q", "?", "", "spans")
    shown = section(Answer(question, ["key", "began", "ended", "state"], lasting, 7))
    assert f"The plot is of {many} rows; 7 are left out." in shown
    assert "and 7 rows more" in shown
    assert "more rows" not in bars([("t", "", 1)])


def test_times_have_seconds() -> None:
    """A day has none."""
    assert moment(DAY + timedelta(hours=9, seconds=7)) == "2026-01-05 09:00:07"
    assert moment(date(2026, 1, 5)) == "2026-01-05"
