"""Parts of HTML pages: a self-contained document, figures, tables, formatted values."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from ..security.untrusted import visible
from .plots import SafeHtml, SvgPlot, moment, number_text, share_text

# Columns with fractions, shown as percentages
SHARES = frozenset("rate rate_low rate_high rate_before share share_low share_high share_of_calls failure_rate".split())

# Columns with differences of fractions, shown as percentage points
DIFFERENCES = frozenset({"change", "change_low", "change_high"})

LISTED = 8  # Maximum values of a list that are shown

_NUMERIC = ' class="num"'


@cache
def style(*names: str) -> str:
    """Concatenated style sheets of this package, by name."""
    folder = files(__package__).joinpath("styles")
    return "".join(folder.joinpath(f"{name}.css").read_text(encoding="utf-8") for name in names)


def document(title: str, body: str) -> str:
    """HTML document with a body; its content security policy forbids scripts, requests and foreign styles."""
    styles = style("report", "plots")
    digest = b64encode(sha256(styles.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{styles}</style></head><body><main><h1>{escape(title)}</h1>{body}</main></body></html>\n"
    )


def figure(picture: SvgPlot, title: str, finding: str, rows: str = "") -> SafeHtml:
    """Figure of a plot, its finding as caption, notes, and the rows as a table; only the table if the plot is empty.

    `title` names the drawing for screen readers; `rows` is the table's markup, empty if it is elsewhere on the page.
    """
    if not picture.svg:
        return SafeHtml(f"<p>{escape(finding)}</p>{rows}")
    named = picture.svg.replace("<svg ", f'<svg aria-label="{escape(title)}" ', 1)
    notes = f'<p class="quiet">{escape(" ".join(picture.notes))}</p>' if picture.notes else ""
    drawn = _scrolled(named, title, newest=picture.timed)
    table = f"<details><summary>The numbers as a table</summary>{rows}</details>" if rows else ""
    return SafeHtml(f'<figure class="picture"><figcaption>{escape(finding)}</figcaption>{drawn}{notes}{table}</figure>')


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    link: Callable[[str, dict[str, Any]], str] = lambda _column, _row: "",
    title: str = "Table",
) -> SafeHtml:
    """Rows as an HTML table with a title for screen readers.

    `link` returns the URL of a value, given its column and its row by names; empty for no link.
    """
    kept = list(rows)
    numeric = [any(isinstance(row[place], (int, float)) for row in kept) for place in range(len(columns))]
    zones = [" (UTC)" if any(isinstance(row[place], datetime) for row in kept) else "" for place in range(len(columns))]
    head = "".join(
        f'<th scope="col"{_NUMERIC if number else ""}>{escape(name.replace("_", " "))}{zone}</th>'
        for name, number, zone in zip(columns, numeric, zones, strict=True)
    )
    body = []
    for row in kept:
        named = dict(zip(columns, row, strict=True))
        cells = (_cell(name, value, link(name, named)) for name, value in named.items())
        body.append(f"<tr>{''.join(cells)}</tr>")
    return SafeHtml(_scrolled(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>", title))


def _scrolled(markup: str, title: str, *, newest: bool = False) -> str:
    """Markup in a box that scrolls, also by keyboard, if the page is narrower; `newest`: from its right end."""
    kind = "scroll newest" if newest else "scroll"
    return f'<div class="{kind}" tabindex="0" role="region" aria-label="{escape(title)}">{markup}</div>'


def _cell(name: str, value: Any, href: str) -> str:
    shown = shown_as(name, value)
    kind = _NUMERIC if isinstance(value, (int, float)) else ' class="w"' if len(shown) > 60 else ""
    if isinstance(value, datetime):
        kind = ' class="t"'
    inside = f'<a href="{escape(href)}">{escape(shown)}</a>' if href and shown else escape(shown)
    return f"<td{kind}>{inside}</td>"


def shown_as(name: str, value: Any) -> str:
    """A column's value as text: fractions as percentages, their differences as percentage points."""
    if name in DIFFERENCES and isinstance(value, (int, float)):
        return f"{value * 100:+.{0 if abs(value) >= 0.0995 else 1}f} points"
    if name.removesuffix("_before") in SHARES and isinstance(value, (int, float)):
        return share_text(value)
    return text(value)


def text(value: Any) -> str:
    """A value as text."""
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
        more = f" and {len(value) - LISTED:,} more" if len(value) > LISTED else ""
        return ", ".join(text(one) for one in value[:LISTED]) + more
    return visible(str(value))


def span(value: timedelta) -> str:
    """A duration in its two largest units."""
    seconds = value.total_seconds()
    for size, unit, smaller, name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if abs(seconds) >= size:
            whole, rest = divmod(abs(seconds), size)
            return f"{'-' if seconds < 0 else ''}{int(whole)} {unit}" + (
                f" {int(rest / smaller)} {name}" if rest >= smaller else ""
            )
    return f"{seconds:.3g} s"
