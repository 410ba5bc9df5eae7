"""Plots as inline SVG: bars, stacked bars, a heat map, spans on a time line. No script, no asset from elsewhere.

Colours come from the page's custom properties, so they follow its light and dark scheme; every mark has a title, which
browsers show and screen readers read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from html import escape
from itertools import pairwise
from math import ceil, isfinite
from typing import Any

WIDTH = 880
ROW = 22
LABEL = 240
LABEL_STEP = 140
"""Room of a time below a column."""

BARS = 40
"""Bars, lines and rows of a plot; the table has more."""

COLUMNS = 12
"""Columns of a heat map."""

SHADES = 8
"""Colours of a page, `--c0` to `--c7`; further series repeat them."""

WORKSPACE = 4
"""Column of a span that tells equal labels apart."""

Rows = Sequence[Sequence[Any]]


def bars(rows: Rows) -> str:
    """Horizontal bars: label in the first column, length in the third; none where the length is not known."""
    known = [(str(row[0]) + _second(row), float(row[2])) for row in rows if row[2] is not None]
    if not known:
        return ""
    values = known[:BARS]
    most = max((value for _, value in values), default=0.0) or 1.0
    room = WIDTH - LABEL - 80
    marks = []
    for number, (label, value) in enumerate(values):
        y, width = number * ROW, max(room * value / most, 1)
        marks.append(
            f"<g><title>{escape(label)}: {number_text(value)}</title>"
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(_short(label))}</text>'
            f'<rect x="{LABEL}" y="{y + 4}" width="{width:.1f}" height="14" rx="2" fill="var(--c0)"/>'
            f'<text x="{LABEL + width + 6:.1f}" y="{y + 15}">{number_text(value)}</text></g>'
        )
    return _svg(len(values) * ROW, marks) + _left_out(len(known) - len(values), "rows")


def stacked(rows: Rows) -> str:
    """Stacked columns on a linear time axis: day or time in the first column, the second by colour, the third as height."""
    series = sorted({str(row[1]) for row in rows})
    along = sorted({row[0] for row in rows})
    if not along:
        return ""
    totals = {at: sum(float(row[2]) for row in rows if row[0] == at) for at in along}
    most = max(totals.values(), default=0.0) or 1.0
    height, left = 180.0, 50
    gap = min((later - earlier for earlier, later in pairwise(along)), default=timedelta(days=1))
    slots = round((along[-1] - along[0]) / gap) + 1
    step = min((WIDTH - left - 10 - LABEL_STEP) / slots, 40)
    marks = []
    for at in along:
        x, top = left + (at - along[0]) / gap * step, height
        for row in (row for row in rows if row[0] == at):
            tall = height * float(row[2]) / most
            top -= tall
            title = f"{moment(at)}, {row[1]}: {number_text(row[2])}"
            marks.append(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(step - 2, 1):.1f}" height="{tall:.1f}" '
                f'fill="var(--c{series.index(str(row[1])) % SHADES})"><title>{escape(title)}</title></rect>'
            )
    marks.append(f'<text x="44" y="12" text-anchor="end">{number_text(most)}</text>')
    marks.append(f'<text x="44" y="{height:.0f}" text-anchor="end">0</text>')
    marks += [
        f'<text x="{left + slot * step:.1f}" y="{height + 16:.0f}">{escape(moment(along[0] + slot * gap))}</text>'
        for slot in range(0, slots, ceil(LABEL_STEP / step))
    ]
    return _svg(height + 24, marks) + legend(series)


def heat(rows: Rows) -> str:
    """A heat map: rows by the first column, columns by the second, shade by the third, from 0 to 1."""
    all_down, all_across = (list(dict.fromkeys(str(row[column]) for row in rows)) for column in (0, 1))
    down, across = all_down[:BARS], all_across[:COLUMNS]
    shade = {(str(row[0]), str(row[1])): row for row in rows}
    cell = min((WIDTH - LABEL) / max(len(across), 1), 120)
    marks = []
    for column, name in enumerate(across):
        x = LABEL + column * cell + cell / 2
        marks.append(
            f'<text x="{x:.1f}" y="14" text-anchor="middle"><title>{escape(name)}</title>{escape(_short(name, int(cell / 7)))}</text>'
        )
    for line, label in enumerate(down):
        y = 20 + line * ROW
        marks.append(f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(_short(label))}</text>')
        for column, name in enumerate(across):
            found = shade.get((label, name))
            if found is None or found[2] is None:
                continue
            rate = float(found[2])
            title = f"{label}, {name}: {rate:.1%} of {number_text(found[3])} calls"
            marks.append(
                f'<g><title>{escape(title)}</title><rect x="{LABEL + column * cell:.1f}" y="{y + 2}" width="{cell - 2:.1f}" '
                f'height="{ROW - 3}" rx="2" fill="var(--bad)" fill-opacity="{0.06 + 0.94 * min(rate, 1) ** 0.5:.2f}"/>'
                f'<text x="{LABEL + column * cell + cell / 2:.1f}" y="{y + 16}" text-anchor="middle">{rate:.0%}</text></g>'
            )
    return (
        _svg(20 + len(down) * ROW, marks)
        + _left_out(len(all_down) - len(down), "rows")
        + _left_out(len(all_across) - len(across), "columns")
    )


def spans(rows: Rows) -> str:
    """Spans on one linear time line: label, beginning, end, kind, workspace; what has no end lasts to the right edge.

    Every width is a duration: what is shorter than a pixel is counted below.
    """
    known = [row for row in rows if row[1] is not None]
    if not known:
        return ""
    first, last = min(row[1] for row in known), max(row[2] or row[1] for row in known)
    if any(row[2] is None for row in known):
        last += max((last - first) / 20, timedelta(minutes=1))
    whole = (last - first).total_seconds() or 1.0
    places = {row[4] for row in known if len(row) > WORKSPACE}
    names = [f"{row[0]} · {row[4]}" if len(places) > 1 else str(row[0]) for row in known]
    every = list(dict.fromkeys(names))
    down = every[:BARS]
    thin = 0
    kinds = sorted({str(row[3]) for row in known})
    room = WIDTH - LABEL
    marks = []
    for line, label in enumerate(down):
        marks.append(f'<text x="{LABEL - 8}" y="{line * ROW + 15}" text-anchor="end">{escape(_short(label))}</text>')
        for row in (row for row, name in zip(known, names, strict=True) if name == label):
            x = LABEL + room * (row[1] - first).total_seconds() / whole
            width = room * ((row[2] or last) - row[1]).total_seconds() / whole
            thin += width < 1
            until = f"to {moment(row[2])}" if row[2] else "on"
            title = f"{label} {row[3]} from {moment(row[1])} {until}"
            marks.append(
                f'<rect x="{x:.1f}" y="{line * ROW + 4}" width="{min(width, WIDTH - x):.3f}" height="14" '
                f'fill="var(--c{kinds.index(str(row[3])) % SHADES})"><title>{escape(title)}</title></rect>'
            )
    base = len(down) * ROW + 14
    marks.append(f'<text x="{LABEL}" y="{base}">{escape(moment(first))}</text>')
    marks.append(f'<text x="{WIDTH}" y="{base}" text-anchor="end">{escape(moment(last))}</text>')
    short = f'<p class="quiet">{thin:,} spans are shorter than a pixel: the table has them</p>' if thin else ""
    return _svg(base + 6, marks) + legend(kinds) + _left_out(len(every) - len(down), "rows") + short


def points(rows: Iterable[tuple[float, float, str, bool]], across: str, up: str) -> str:
    """A scatter of shares: across, up, label, whether to mark it."""
    height, left, room = 320, 60, WIDTH - 120
    places = list(rows)
    widest = max((x for x, _, _, _ in places), default=0.0) or 0.01
    marks = [
        f'<text x="{left}" y="{height + 34}">{escape(across)} →</text>',
        f'<text x="{left - 44}" y="12">{escape(up)} ↑</text>',
        f'<path d="M{left},20V{height}H{left + room}" fill="none" stroke="currentColor" stroke-opacity=".4"/>',
        f'<text x="{left - 6}" y="{height}" text-anchor="end">0%</text><text x="{left - 6}" y="30" text-anchor="end">100%</text>',
        f'<text x="{left + room}" y="{height + 16:.0f}" text-anchor="end">{widest:.1%}</text>',
    ]
    for x, y, label, marked in places:
        px, py = left + room * x / widest, height - (height - 26) * y
        size, fill = (7, "var(--c1)") if marked else (5, "var(--c0)")
        marks.append(
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{size}" fill="{fill}" fill-opacity=".8"><title>{escape(label)}</title></circle>'
        )
    return _svg(height + 42, marks)


def legend(names: Sequence[str]) -> str:
    """Which colour is which."""
    keys = (
        f'<span><i style="background:var(--c{number % SHADES})"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f'<p class="legend">{" ".join(keys)}</p>'


def number_text(value: Any) -> str:
    """A number as people write it."""
    number = float(value)
    if not isfinite(number):
        return str(number)
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:,.3g}" if abs(number) < 100 else f"{number:,.0f}"


def moment(value: Any) -> str:
    """A day, or a time to the second."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return value.isoformat() if isinstance(value, date) else str(value)


def _second(row: Sequence[Any]) -> str:
    return f" · {row[1]}" if isinstance(row[1], str) else ""


def _short(text: str, most: int = 34) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _left_out(number: int, what: str) -> str:
    return f'<p class="quiet">{number:,} more {what} are not in the plot</p>' if number > 0 else ""


def _svg(height: float, marks: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" preserveAspectRatio="xMinYMin">{"".join(marks)}</svg>'


DRAW = {"bars": bars, "stacked": stacked, "heat": heat, "spans": spans}
"""Plot of each kind of question."""
