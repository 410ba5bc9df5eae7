"""The report as one HTML page that needs nothing else: styles and plots are inside, no script, no request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from html import escape
from typing import Any

from .plots import DRAW, moment, number_text
from .questions import Answer

SHOWN = 50
"""Rows of a table; the query is beside it for whoever wants all."""

_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")
"""What would command a terminal: names come from whoever publishes. Tabs and new lines stay."""

STYLE = """
:root{color-scheme:light dark;--c0:#3867d6;--c1:#eb3b5a;--c2:#20bf6b;--c3:#f7b731;--c4:#8854d0;--c5:#0fb9b1;--c6:#fa8231;--c7:#778ca3;--bad:#eb3b5a}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}h2{margin-top:2.5rem;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}
.scroll{overflow-x:auto}.scroll svg{min-width:44rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.86rem}
th{text-align:left;border-bottom:1px solid}td,th{padding:.2rem .7rem .2rem 0;vertical-align:top;white-space:nowrap}
td.n{text-align:right}td.w{white-space:normal;min-width:16rem}tr:nth-child(even) td{background:color-mix(in srgb,currentColor 4%,transparent)}
svg{width:100%;height:auto;margin:.8rem 0}svg text{font:12px system-ui,sans-serif;fill:currentColor}
.legend span{margin-right:1rem;white-space:nowrap}.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px}
.quiet{opacity:.7}nav a{margin-right:.9rem}summary{cursor:pointer;opacity:.7}pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem}
@media print{nav,details{display:none}}
"""


def page(title: str, subtitle: str, answers: Sequence[Answer]) -> str:
    """The whole page."""
    told = [answer for answer in answers if answer.rows]
    silent = [answer.question.title for answer in answers if not answer.rows]
    parts = [section(answer) for answer in told]
    if silent:
        parts.append(f'<p class="quiet">Nothing recorded for: {escape(" · ".join(silent))}</p>')
    links = " ".join(f'<a href="#{answer.question.name}">{escape(answer.question.name)}</a>' for answer in told)
    return document(title, f'<p class="quiet">{escape(subtitle)}</p><nav>{links}</nav>{"".join(parts)}')


def document(title: str, body: str) -> str:
    """A page around a body."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def section(answer: Answer) -> str:
    """One question with its plot, its table and its query."""
    question = answer.question
    drawn = plotted(DRAW[question.plot](answer.rows), question.title) if question.plot else ""
    hidden = answer.left_out + max(len(answer.rows) - SHOWN, 0)
    more = f'<p class="quiet">and {hidden:,} rows more, which the query has</p>' if hidden else ""
    if drawn and answer.left_out:
        drawn += f'<p class="quiet">The plot is of {len(answer.rows):,} rows; {answer.left_out:,} are left out.</p>'
    reads = f'<p class="quiet">{escape(question.reads)}</p>' if question.reads else ""
    return (
        f'<section id="{escape(question.name)}"><h2>{escape(question.title)}</h2>{reads}{drawn}'
        f"{table(answer.columns, answer.rows[:SHOWN])}{more}"
        f"<details><summary>query</summary><pre>{escape(question.sql)}</pre></details></section>"
    )


def plotted(drawing: str, title: str) -> str:
    """A plot that keeps its size where the page is narrow, and says what it is to who cannot see it."""
    if not drawing:
        return ""
    named = drawing.replace("<svg ", f'<svg aria-label="{escape(title)}" ', 1)
    return f'<div class="scroll">{named}</div>'


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as an HTML table."""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: Any) -> str:
    shown = text(value)
    kind = ' class="n"' if isinstance(value, (int, float)) else ' class="w"' if len(shown) > 60 else ""
    return f"<td{kind}>{escape(shown)}</td>"


def text(value: Any) -> str:
    """One value for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number_text(value)
    if isinstance(value, (datetime, date)):
        return moment(value)
    if isinstance(value, timedelta):
        return span(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(text(one) for one in value)
    return str(value).translate(_CONTROLS)


def span(value: timedelta) -> str:
    """A length of time in its largest two units."""
    seconds = value.total_seconds()
    for size, unit, smaller, name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if abs(seconds) >= size:
            whole, rest = divmod(abs(seconds), size)
            return f"{'-' if seconds < 0 else ''}{int(whole)} {unit}" + (
                f" {int(rest / smaller)} {name}" if rest >= smaller else ""
            )
    return f"{seconds:.3g} s"
