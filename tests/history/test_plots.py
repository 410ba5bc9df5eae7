"""Plots are true to scale, coloured by meaning, and say what they leave out."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustfold.history.charts import picture
from trustfold.history.page import figure
from trustfold.history.plots import (
    COLUMNS,
    FEW,
    LABEL,
    LETTER,
    LEVELS,
    ROWS,
    STATES,
    WIDTH,
    FailureRate,
    HeatCell,
    PlotBar,
    StackPart,
    StateSpan,
    SvgPlot,
    TimeAxis,
    bars,
    columns,
    heat,
    level,
    moment,
    rates,
    share_text,
    ticks,
    timeline,
)
from trustfold.history.reports import BY_NAME, QuestionAnswer
from trustfold.schemas.vocabulary import BreakerState, FailureSeverity, PatternSeverity, TrustState

DAY = datetime(2026, 1, 5)  # noqa: DTZ001 - as DuckDB gives it
HOUR = timedelta(hours=1)


def rectangles(drawn: SvgPlot) -> list[tuple[float, float, str]]:
    """Left edge, width and fill of every mark that has a title; those of the key have none."""
    found = []
    for element in ET.fromstring(drawn.svg).iter():
        if element.tag != "svg" and element.find("title") is not None:
            found += [one for one in (element, *element) if one.tag == "rect"]
    return [(float(one.get("x", 0)), float(one.get("width", 0)), one.get("fill", "")) for one in found]


def test_circuits_are_as_wide_as_they_were_long_open() -> None:
    """No width is a minimum: a second of a day is no pixel, and that is said."""
    spans = [
        StateSpan("a", DAY, DAY + 12 * HOUR, "open"),
        StateSpan("a", DAY + 18 * HOUR, DAY + 24 * HOUR, "open"),
        StateSpan("b", DAY, DAY + timedelta(seconds=1), "open"),
    ]
    drawn = timeline(spans)
    (_, half, _), (_, quarter, _), (_, second, _) = rectangles(drawn)
    assert half == pytest.approx(2 * quarter, abs=0.01)
    assert second * 12 * 3600 == pytest.approx(half, rel=0.1)
    assert drawn.notes == ("1 span is shorter than a pixel: the table has it.",)


def test_a_state_comes_in_from_before_the_window_and_stops_at_the_last_known_instant() -> None:
    """It begins at the edge; what is still so ends where knowledge ends; what was over before is not drawn."""
    window = TimeAxis(DAY, DAY + 10 * HOUR)
    spans = [
        StateSpan("a", DAY - 48 * HOUR, DAY - HOUR, "blocked"),
        StateSpan("a", DAY - HOUR, DAY + 5 * HOUR, "open"),
        StateSpan("a", DAY + 5 * HOUR, None, "half_open"),
    ]
    assert rectangles(timeline(spans, window)) == [
        (LABEL, (WIDTH - LABEL) / 2, "var(--state-open)"),
        (LABEL + (WIDTH - LABEL) / 2, (WIDTH - LABEL) / 2, "var(--state-half-open)"),
    ]


def test_equal_neighbours_are_one_state() -> None:
    """A state that was announced twice was there once."""
    spans = [StateSpan("a", DAY, DAY + HOUR, "open"), StateSpan("a", DAY + HOUR, DAY + 2 * HOUR, "open")]
    assert len(rectangles(timeline(spans))) == 1


def test_colours_have_meanings() -> None:
    """Every severity and state of the contract has one; a broken server is not green, what nobody knows is grey."""
    assert {*FailureSeverity, *PatternSeverity} <= LEVELS.keys()
    assert {*TrustState, *BreakerState} <= STATES.keys()
    assert level("security") > level("server_error") > level("timeout") > level("not_found")
    drawn = columns([StackPart(date(2026, 1, 5), name, 1) for name in ("server_error", "odd")], "failures", 24 * HOUR)
    assert [fill for *_, fill in rectangles(drawn)] == ["var(--state-unknown)", "var(--sev-4)"]
    (known, unknown) = rectangles(
        timeline([StateSpan("a", DAY, DAY + HOUR, "closed"), StateSpan("b", DAY, DAY + HOUR, "odd")])
    )
    assert (known[2], unknown[2]) == ("var(--state-ok)", "var(--state-unknown)")


def test_days_without_failures_take_their_place() -> None:
    """The axis of time is linear."""
    parts = [StackPart(date(2026, 1, day), "crash", 1) for day in (1, 2, 9)]
    (first, _, _), (second, _, _), (last, wide, _) = rectangles(columns(parts, "failures", 24 * HOUR))
    assert last - first == pytest.approx(8 * (second - first), abs=0.5)
    assert last + wide < WIDTH


def test_a_rate_has_a_gap_where_nothing_was_called() -> None:
    """No call is not a rate of zero."""
    points = [FailureRate(DAY, 1, 4, 0.05, 0.7), FailureRate(DAY + HOUR, 0, 0), FailureRate(DAY + 2 * HOUR, 0, 5)]
    text = rates(points, HOUR).svg
    assert text.count('class="line"') == 2
    assert "25 % (1/4), 5.0 % to 70 %" in text
    assert "0 % (0/5)" in text
    assert not rates([FailureRate(DAY, 0, 0)], HOUR).svg


def test_the_interval_of_a_rate_is_drawn_whole() -> None:
    """Rates are drawn to a scale that holds their intervals, too."""
    points = [FailureRate(DAY, 1, 4, 0.05, 0.7), FailureRate(DAY + HOUR, 0, 5, 0.0, 0.43)]
    wide, narrow = (float(tall) for tall in re.findall(r'class="band"[^>]* height="([\d.]+)"', rates(points, HOUR).svg))
    assert wide / narrow == pytest.approx(0.65 / 0.43, rel=0.01)


def test_a_cell_of_a_heat_map_says_how_many_calls_it_is_of() -> None:
    """Never called, no failure, and too few for a claim look different."""
    cells = [
        HeatCell("bash", "m1", 0.0, 0, 40),
        HeatCell("bash", "m2", 0.3, 12, 40, "/models?x=1&y=2"),
        HeatCell("read", "m1", 1.0, 2, 2),
        HeatCell("write", "m2", None, 0, 0),
    ]
    drawn = heat(cells)
    assert [fill for *_, fill in rectangles(drawn)] == ["var(--zero)", "var(--sev-5)", "none", "", "", "none"]
    assert drawn.svg.count("never called") == 2
    assert all(
        text in drawn.svg for text in ("0/40", "12/40", "2/2", "too few for a claim", 'href="/models?x=1&amp;y=2"')
    )
    assert str(FEW) in drawn.notes[0]


def test_what_is_not_in_a_plot_is_said() -> None:
    """Rows and columns beyond those drawn."""
    many = ROWS + 3
    assert bars([PlotBar(f"t{number}", number) for number in range(many)], "calls").notes == (
        "3 more rows are not in the plot.",
    )
    cells = [
        HeatCell(f"t{number}", f"m{column}", 0.5, 10, 20) for number in range(many) for column in range(COLUMNS + 2)
    ]
    assert heat(cells).notes[1:] == ("3 more rows are not in the plot.", "2 more columns are not in the plot.")
    lasting = [StateSpan(f"k{number}", DAY, DAY + HOUR, "open") for number in range(many)]
    assert timeline(lasting).notes == ("3 more rows are not in the plot.",)
    assert bars([PlotBar("t", 1)], "calls").notes == ()


def axis(drawn: SvgPlot) -> list[str]:
    """Texts along the axes."""
    return [str(one.text) for one in ET.fromstring(drawn.svg).iter() if one.get("class") == "axis"]


@given(st.floats(1e-5, 1))
def test_numbers_of_an_axis_of_shares_are_true(most: float) -> None:
    """Each as far from the one before as it is drawn, and none twice: 0.25 % is not `0.2 %`."""
    drawn = [text for text in axis(bars([PlotBar("t", most)], "share")) if text.endswith(" %")]
    assert [float(text.removesuffix(" %")) / 100 for text in drawn] == pytest.approx(ticks(most), rel=1e-6)


def test_counts_have_whole_numbers_on_their_axis() -> None:
    """There is no quarter of a failure."""
    one = columns([StackPart(date(2026, 1, 5), "crash", 1)], "failures", 24 * HOUR)
    assert [text for text in axis(one) if text[0].isdigit()][:2] == ["0", "1"]
    assert [text for text in axis(bars([PlotBar("t", 2)], "calls")) if text[0].isdigit()] == ["0", "1", "2"]
    assert "0.5" in axis(bars([PlotBar("t", 1.5)], "seconds"))


def test_a_column_is_a_day_wide_whatever_days_have_failures() -> None:
    """Failures of every other day are not drawn as failures of all days."""
    question = BY_NAME["failures"]
    every, second = (
        picture(
            QuestionAnswer(
                question, ["day", "severity", "failures"], [(date(2026, 1, day), "crash", 1) for day in days]
            )
        )
        for days in (range(1, 8), range(1, 8, 2))
    )
    assert rectangles(second) == rectangles(every)[::2]


def test_what_lasted_no_time_has_an_axis_that_lasts() -> None:
    """A state that began and ended at one instant is a span shorter than a pixel of a minute."""
    drawn = timeline([StateSpan("a", DAY, DAY, "open")])
    assert "2026-01-05 00:00:00 to 2026-01-05 00:01:00, UTC" in axis(drawn)
    assert drawn.notes == ("1 span is shorter than a pixel: the table has it.",)


def test_a_cut_timeline_says_that_its_lines_are_not_whole() -> None:
    """Its note names the rows left out, since a gap otherwise means that nothing is known of that time."""
    rows = [("bash", "default", "open", DAY, DAY + HOUR, "breaker")]
    columns_ = ["subject", "workspace", "state", "began", "ended", "machine"]
    cut = picture(QuestionAnswer(BY_NAME["states"], columns_, rows, 7)).notes
    assert cut == ("The plot is of 1 row; 7 are left out, so that lines may have gaps.",)


@given(st.floats(0, 11), st.integers(0, 400 * 24 * 3600))
def test_times_of_an_axis_do_not_overlap(magnitude: float, after: int) -> None:
    """From a second to a hundred years: some times, in order, inside the plot, with room between them."""
    begin = DAY + timedelta(seconds=after)
    length = timedelta(seconds=min(10**magnitude, 3e9))
    drawn = timeline([StateSpan("a", begin, None, "open")], TimeAxis(begin, begin + length))
    texts = [one for one in ET.fromstring(drawn.svg).iter() if one.get("text-anchor") == "middle"][:-1]
    edges = [(float(one.get("x", 0)), len(str(one.text)) * LETTER / 2) for one in texts]
    assert edges
    assert all(x - half + 0.1 >= LABEL and x + half - 0.1 <= WIDTH for x, half in edges)
    assert all(x + half < later - far for (x, half), (later, far) in pairwise(edges))


@given(st.floats(1e-6, 1e9))
def test_an_axis_has_a_few_round_numbers(most: float) -> None:
    """From 0, at equal distances, none beyond the end, and the last one near it."""
    found = ticks(most)
    assert found[0] == 0
    assert 2 <= len(found) <= 6
    assert found[-1] <= most * 1.001
    assert most - found[-1] <= found[1] * 1.001


@given(st.text(), st.text(alphabet="<>&\"'\u202e"))
def test_names_are_text(label: str, state: str) -> None:
    """Whatever a publisher calls a thing, it opens no element."""
    label = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "", label)
    for drawn in (
        bars([PlotBar(label, 1, of=state)], state),
        timeline([StateSpan(label, DAY, None, state)]),
        heat([HeatCell(label, state, 0.5, 10, 20, label)]),
        columns([StackPart(DAY, state, 1)], label, HOUR),
    ):
        ET.fromstring(drawn.svg)
    assert "<b>" not in figure(SvgPlot(drawn.svg), "<b>", "<b>", "")


def test_times_and_shares_as_people_write_them() -> None:
    """A time has seconds, a day none; a small share has a decimal."""
    assert moment(datetime(2026, 1, 5, 9, 0, 7, tzinfo=UTC)) == "2026-01-05 09:00:07"
    assert moment(date(2026, 1, 5)) == "2026-01-05"
    assert [share_text(value) for value in (0, 0.004, 0.0996, 0.5, 1)] == ["0 %", "0.4 %", "10 %", "50 %", "100 %"]


def test_a_share_is_none_or_all_only_where_it_is() -> None:
    """One failure of ten thousand calls is not `0.0 %`, and one success not `100 %`."""
    shares = (0.0004, 0.00001, -0.0004, 0.9999, 0.9951)
    assert [share_text(value) for value in shares] == ["0.04 %", "0.001 %", "-0.04 %", "99.9 %", "99.5 %"]
