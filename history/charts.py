"""Plots of answers: converts the rows of a question into the marks of its plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ..security.untrusted import visible
from .plots import (
    HeatCell,
    PlotBar,
    SafeHtml,
    StackPart,
    StateSpan,
    SvgPlot,
    TimeAxis,
    bars,
    columns,
    heat,
    number_text,
    timeline,
)
from .reports import PlotColumns, QuestionAnswer

# Function that returns the URL a cell links to, given its row by column names; empty for no link
Link = Callable[[dict[str, Any]], str]


def picture(answer: QuestionAnswer, window: TimeAxis | None = None, link: Link = lambda _row: "") -> SvgPlot:
    """Plot of an answer; empty if its question has no plot or no row can be drawn.

    The time axis shows `window`, by default the time of the rows; `link` gives the URL of a heat map cell.
    """
    plot = answer.question.plot
    if plot is None or not answer.rows:
        return SvgPlot(SafeHtml())
    rows = objects(answer)
    drawn = _DRAW[plot.kind](plot, rows, window, link)
    cut = f"The plot is of {len(rows):,} {'row' if len(rows) == 1 else 'rows'}; {answer.left_out:,} are left out"
    cut += ", so that lines may have gaps." if plot.kind == "timeline" else "."
    return drawn._replace(notes=(*drawn.notes, cut)) if drawn.svg and answer.left_out else drawn


def objects(answer: QuestionAnswer) -> list[dict[str, Any]]:
    """Rows of an answer as dictionaries by column name."""
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _bars(plot: PlotColumns, rows: Sequence[dict[str, Any]], _window: TimeAxis | None, _link: Link) -> SvgPlot:
    known = [row for row in rows if row[plot.value] is not None]
    drawn = bars([_bar(plot, row) for row in known], plot.unit)
    unknown = len(rows) - len(known)
    said = (f"{unknown:,} {'row has' if unknown == 1 else 'rows have'} no {plot.value.replace('_', ' ')} and no bar.",)
    return drawn._replace(notes=drawn.notes + said) if drawn.svg and unknown else drawn


def _bar(plot: PlotColumns, row: dict[str, Any]) -> PlotBar:
    low, high = row.get(plot.low), row.get(plot.high)
    of = f"{number_text(row[plot.hits])}/{number_text(row[plot.trials])}" if plot.hits else ""
    if of and plot.unit != "share":
        of += f" {plot.hits.replace('_', ' ')}"
    return PlotBar(
        _label(plot, row),
        float(row[plot.value]),
        None if low is None else float(low),
        None if high is None else float(high),
        of,
    )


def _columns(plot: PlotColumns, rows: Sequence[dict[str, Any]], _window: TimeAxis | None, _link: Link) -> SvgPlot:
    parts = [StackPart(row[plot.began], str(row[plot.label[0]]), float(row[plot.value])) for row in rows]
    return columns(parts, plot.unit, timedelta(days=1))


def _heat(plot: PlotColumns, rows: Sequence[dict[str, Any]], _window: TimeAxis | None, link: Link) -> SvgPlot:
    down, across = plot.label
    return heat(
        [
            HeatCell(
                visible(str(row[down])),
                visible(str(row[across])),
                row[plot.value],
                row[plot.hits],
                row[plot.trials],
                link(row),
            )
            for row in rows
        ]
    )


def _timeline(plot: PlotColumns, rows: Sequence[dict[str, Any]], window: TimeAxis | None, _link: Link) -> SvgPlot:
    first, *rest = plot.label
    several = any(len({row[name] for row in rows}) > 1 for name in rest)
    short = plot if several else plot._replace(label=(first,))
    spans = [
        StateSpan(_label(short, row), row[plot.began], row[plot.ended], str(row[plot.value]))
        for row in rows
        if row[plot.began]
    ]
    return timeline(spans, window)


def _label(plot: PlotColumns, row: dict[str, Any]) -> str:
    return visible(" · ".join(str(row[name]) for name in plot.label if row[name] is not None))


_DRAW: dict[str, Callable[[PlotColumns, Sequence[dict[str, Any]], TimeAxis | None, Link], SvgPlot]] = {
    "bars": _bars,
    "columns": _columns,
    "heat": _heat,
    "timeline": _timeline,
}
