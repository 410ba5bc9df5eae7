"""The report as one HTML page: numbers first, then what to look at, then pictures, then short tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from .charts import picture
from .findings import finding
from .page import document, figure, table
from .plots import TimeAxis, moment
from .reports import QuestionAnswer
from .summary import SummaryFinding, SummaryNumber, SummaryPeriod

SHOWN = 15  # Maximum rows of a table; the query beside it gives all

# First questions of the page, in order; the others follow, and `LAST` at the end
FIRST = ("now", "worse", "failures", "states", "tools", "models", "loop-costs", "patterns", "nudges")

LAST = ("overview", "recent")

NOT_PRINTED = ("loops", "reasons", "sessions", *LAST)  # Questions that printed pages leave out: others tell most of it

# Columns that tables leave out, by question; the query has them
_NOT_SHOWN = {
    "now": {"acknowledged", "acknowledged_by", "grown", "sessions", "waiting", "parts", "last_news", "changes_at"}
}


class ReportContent(NamedTuple):
    """Content of a report."""

    title: str
    period: SummaryPeriod | None  # period of its numbers; None if nothing is recorded
    window: TimeAxis | None  # time range of the state timelines, up to the last known time
    filters: str  # description of the filters; empty if none
    made: datetime
    numbers: Sequence[SummaryNumber]
    pointers: Sequence[SummaryFinding]
    answers: Sequence[QuestionAnswer]


def report_page(report: ReportContent) -> str:
    """The whole page; explains questions without rows."""
    by_name = {answer.question.name: answer for answer in report.answers if answer.rows}
    order = [name for name in FIRST if name in by_name]
    order += [name for name in by_name if name not in order and name not in LAST]
    order += [name for name in LAST if name in by_name]
    silent = [
        f"<dt>{escape(answer.question.title)}</dt><dd>{escape(finding(answer))}</dd>"
        for answer in report.answers
        if not answer.rows
    ]
    nothing = f'<h2>Without rows</h2><dl class="quiet">{"".join(silent)}</dl>' if silent else ""
    links = " ".join(f'<a href="#{escape(name)}">{escape(by_name[name].question.title)}</a>' for name in order)
    return document(
        report.title,
        f"{_head(report)}{_numbers(report, by_name)}{_first(report.pointers)}"
        f'<nav aria-label="Questions">{links}</nav>'
        f'<div class="sections">{"".join(section(by_name[name], report.window) for name in order)}</div>{nothing}',
    )


def section(answer: QuestionAnswer, window: TimeAxis | None = None) -> str:
    """Section of a question with its plot, table and query; state timelines show the window."""
    question = answer.question
    drawn = picture(answer, window if question.plot and question.plot.kind == "timeline" else None)
    places = [n for n, name in enumerate(answer.columns) if name not in _NOT_SHOWN.get(question.name, ())]
    shown = [[row[place] for place in places] for row in answer.rows[:SHOWN]]
    rows = table([answer.columns[place] for place in places], shown, title=f"{question.title} Table")
    hidden = answer.left_out + max(len(answer.rows) - SHOWN, 0)
    more = f'<p class="quiet">and {hidden:,} rows more, which the query has</p>' if hidden else ""
    reads = f'<p class="quiet">{escape(question.reads)}</p>' if question.reads else ""
    kinds = "wide " * (not drawn.svg) + "more" * (question.name in NOT_PRINTED)
    return (
        f'<section id="{escape(question.name)}" class="{kinds}"><h2>{escape(question.title)}</h2>'
        f"{figure(drawn, question.title, finding(answer), rows + more)}{reads}"
        f'<details class="query"><summary>Query</summary><pre>{escape(question.sql)}</pre></details></section>'
    )


def _head(report: ReportContent) -> str:
    said = [f"Made {report.made.astimezone(UTC):%Y-%m-%d %H:%M:%S}+00:00; all times are UTC (+00:00)."]
    if report.filters:
        said.append(f"Only {report.filters}.")
    if report.period:
        first = report.period.first
        partly = f", of which only the time from {moment(first)} on is recorded" if first else ""
        span = f"The numbers are of {moment(report.period.begin)} to {moment(report.period.end)}"
        said.append(
            f"{span}, against as long before{partly}."
            if report.period.comparable
            else f"{span}; there is nothing before to compare with."
        )
    printed = (
        f"Printed are the first 5 rows of each table; the page has more, and its own sections {', '.join(NOT_PRINTED)}."
    )
    return f'<p class="quiet">{escape(" ".join(said))}</p><p class="quiet printed">{printed}</p>'


def _numbers(report: ReportContent, by_name: Mapping[str, QuestionAnswer]) -> str:
    return f'<ul class="numbers">{"".join(_number(one, one.section in by_name) for one in report.numbers)}</ul>'


def _number(one: SummaryNumber, linked: bool) -> str:  # noqa: FBT001 - private
    name = f'<a href="#{escape(one.section)}">{escape(one.name)}</a>' if linked else escape(one.name)
    verdict = f' <span class="verdict {one.verdict}">{_SHAPES[one.verdict]} {one.verdict}</span>' if one.verdict else ""
    before = f"<small>{escape(one.before)}</small>" if one.before else ""
    return f'<li><b>{escape(one.value)}</b><span class="name">{name}</span>{verdict}<small>{escape(one.means)}</small>{before}</li>'


_SHAPES = {"worse": "▲", "better": "▼"}
_MARKS = {
    "blocked": "■",
    "escalated": "▲",
    "open": "●",
    "half-open": "◐",
    "stuck": "↻",
    "degraded": "◆",
    "recovering": "◔",
    "ok": "✓",
}


def _first(pointers: Sequence[SummaryFinding]) -> str:
    if not pointers:
        return "<h2>Look here first</h2><p>Nothing needs somebody, nothing got worse, no session led nowhere.</p>"
    rows = "".join(
        f'<li><span class="mark {one.colour}">{_MARKS.get(one.colour, "○")} {escape(one.mark)}</span> '
        f'<a href="#{escape(one.section)}"><code>{escape(one.subject)}</code></a>: {escape(one.says)}'
        + (f" · <code>{escape(one.order)}</code>" if one.order else "")
        + "</li>"
        for one in pointers
    )
    return f'<h2>Look here first</h2><ol class="first">{rows}</ol>'
