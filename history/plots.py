"""SVG drawings with colours by meaning: bars, columns, rates over time, state timelines, heat maps, scatters.

A drawing is one `<svg>` element without script, style attributes or assets from elsewhere. Colours are custom properties of
the page (`--state-…`, `--sev-…`, `--series`), so that they follow its light and dark scheme. Every mark has a title, every
axis a unit, every axis of time is linear and in UTC. Omissions are described in `notes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from html import escape
from itertools import groupby
from math import ceil, floor, isfinite, log10
from typing import Any, NamedTuple

WIDTH = 720
ROW = 22
LABEL = 230
RIGHT = 150  # Width in pixels for a number after the longest bar

HEIGHT = 180
LEFT = 56
BELOW = 40  # Height in pixels for times and the axis label below a plot
ROWS = 40  # Maximum bars, lines and rows of a plot; the table has more
COLUMNS = 12  # Maximum columns of a heat map
FEW = 10  # Minimum calls for a meaningful rate; cells with fewer have no colour
LAST = 6  # Least width of a state that still holds, in pixels
HEAD = 34  # Height of the heads of columns: two lines
LETTER = 7  # Width of a letter, in pixels

# Meaning of the colour of each state of trust or of a circuit; other states are `unknown`
STATES = {
    "blocked": "blocked", "removed": "blocked", "forced_open": "blocked",
    "escalated": "escalated", "open": "open", "half_open": "half-open", "degraded": "degraded",
    "stuck": "stuck", "recovering": "recovering", "trusted": "ok", "closed": "ok", "ok": "ok",
}  # fmt: skip

# Colour step, 1 (mild) to 5, of each severity of a failure or of a pattern
LEVELS = {
    "not_found": 1, "transient": 1, "invalid_input": 2, "validation": 2, "permission": 2, "timeout": 3,
    "server_error": 4, "crash": 4, "corruption": 5, "security": 5, "repeated_auth": 5,
    "minor": 1, "moderate": 3, "severe": 5,
}  # fmt: skip

SHADES = (0.0, 0.02, 0.05, 0.1, 0.25)  # Lower bounds of the rates for colour steps 1 to 5 of heat map cells

_STEPS = [timedelta(seconds=s) for s in (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200)]
_STEPS += [timedelta(days=d) for d in (1, 2, 7, 14, 28, 91, 182, 364, 728, 3640, 7280, 36_400, 364_000)]


class SafeHtml(str):
    """Markup that templates need not escape."""

    __slots__ = ()

    def __html__(self) -> str:
        """The markup."""
        return str(self)


class SvgPlot(NamedTuple):
    """Plot as SVG, with notes."""

    svg: SafeHtml  # one element; empty if there is nothing to draw
    notes: tuple[str, ...] = ()  # sentences about omissions and the meaning of colours
    # whether its width is a span of time without names at the left, so that its right end is seen first
    timed: bool = False


class PlotBar(NamedTuple):
    """A horizontal bar."""

    label: str  # name of the bar
    value: float  # its length
    # low, high: its 95 % interval, if any
    low: float | None = None
    high: float | None = None
    of: str = ""  # counts behind the value, such as `3/20`


class StackPart(NamedTuple):
    """Part of a stacked column: the amount of one severity in the step that starts at a time."""

    at: date
    severity: str
    value: float


class FailureRate(NamedTuple):
    """Failures among the calls of a time span; `low` and `high` are the 95 % interval of the rate."""

    at: datetime
    failures: int
    calls: int
    low: float | None = None
    high: float | None = None


class StateSpan(NamedTuple):
    """A state of something from a time until another; without an end it is still so."""

    label: str
    began: datetime
    ended: datetime | None
    state: str


class HeatCell(NamedTuple):
    """Cell of a heat map: a rate, its failures and calls, and the URL it links to."""

    row: str
    column: str
    rate: float | None
    failures: int
    calls: int
    href: str = ""


class TimeAxis(NamedTuple):
    """Time range of an axis."""

    begin: datetime
    end: datetime

    def place(self, at: datetime, room: float) -> float:
        """Position in pixels of a time on an axis that is `room` pixels long."""
        whole = (self.end - self.begin).total_seconds() or 1.0
        return room * min(max((at - self.begin).total_seconds() / whole, 0.0), 1.0)


def bars(every: Sequence[PlotBar], unit: str) -> SvgPlot:
    """Horizontal bars on an axis from 0, with their intervals as lines; the unit `share` prints percentages."""
    drawn = every[:ROWS]
    if not drawn:
        return SvgPlot(SafeHtml())
    told = share_text if unit == "share" else number_text
    most = max((max(one.value, one.high or 0.0) for one in drawn), default=0.0) or 1.0
    room = WIDTH - LABEL - RIGHT
    foot = len(drawn) * ROW + 4
    marks = []
    for tick in ticks(most, unit != "share" and _whole(one.value for one in drawn)):
        x = LABEL + room * tick / most
        marks.append(f'<path class="grid" d="M{x:.1f},0V{foot}"/>')
        marks.append(
            f'<text class="axis" x="{x:.1f}" y="{foot + 14}" text-anchor="middle">{_tick(tick, unit == "share")}</text>'
        )
    named = unit + (", 95 % interval as a line" if any(one.low is not None for one in drawn) else "")
    marks.append(
        f'<text class="axis" x="{LABEL + room / 2:.0f}" y="{foot + 30}" text-anchor="middle">{escape(named)}</text>'
    )
    for number, one in enumerate(drawn):
        y, width = number * ROW, room * one.value / most
        says = told(one.value) + (f" ({one.of})" if one.of else "")
        interval, end = "", width
        if one.low is not None and one.high is not None:
            end = max(width, room * one.high / most)
            says_all = f"{says}, {told(one.low)} to {told(one.high)}"
            interval = f'<path class="whisker" d="M{LABEL + room * one.low / most:.1f},{y + 11}H{LABEL + room * one.high / most:.1f}"/>'
        else:
            says_all = says
        marks.append(
            f"<g><title>{escape(one.label)}: {escape(says_all)}{'' if unit == 'share' else f' {escape(unit)}'}</title>"
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(short(one.label))}</text>'
            f'<rect x="{LABEL}" y="{y + 4}" width="{width:.1f}" height="14" fill="var(--series)"/>{interval}'
            f'<text x="{LABEL + end + 6:.1f}" y="{y + 15}">{escape(says)}</text></g>'
        )
    return SvgPlot(_svg(foot + 34, marks), _left_out(len(every) - len(drawn), "rows"))


def columns(parts: Sequence[StackPart], unit: str, step: timedelta) -> SvgPlot:
    """Stacked columns over time, mild severities at the bottom; `step` is the duration of one column."""
    if not parts:
        return SvgPlot(SafeHtml())
    begins = {part.at: beginning(part.at) for part in parts}
    shown = TimeAxis(min(begins.values()), max(begins.values()) + step)
    totals = {at: sum(part.value for part in parts if part.at == at) for at in begins}
    most = max(totals.values()) or 1.0
    room = WIDTH - LEFT - 10
    marks = _scale(most, unit, least=_whole(part.value for part in parts))
    wide = max(shown.place(shown.begin + step, room) - 1, 1)
    for at, begin in sorted(begins.items(), key=lambda one: one[1]):
        top = float(HEIGHT)
        x = LEFT + shown.place(begin, room)
        for part in sorted((p for p in parts if p.at == at), key=lambda p: (level(p.severity), p.severity)):
            tall = HEIGHT * part.value / most
            top -= tall
            title = (
                f"{moment(at)}, {words(part.severity)}: {number_text(part.value)} {unit} of {number_text(totals[at])}"
            )
            marks.append(
                f'<rect class="edged" x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{tall:.1f}" '
                f'fill="var(--{_shade(part.severity)})"><title>{escape(title)}</title></rect>'
            )
    marks += _times(shown, LEFT, room, HEIGHT)
    present = sorted({part.severity for part in parts}, key=lambda name: (level(name), name))
    grouped = [(shade, ", ".join(map(words, names))) for shade, names in groupby(present, _shade)]
    return SvgPlot(_svg(HEIGHT + BELOW, marks, [(f"var(--{shade})", names) for shade, names in grouped]), timed=True)


def rates(points: Sequence[FailureRate], step: timedelta, window: TimeAxis | None = None) -> SvgPlot:
    """Failure rate over time as a line, with its 95 % interval; without calls the line has a gap."""
    known = [point for point in points if point.calls]
    if not known:
        return SvgPlot(SafeHtml())
    shown = window or TimeAxis(min(point.at for point in known), max(point.at for point in known) + step)
    most = max(*(max(point.failures / point.calls, point.high or 0.0) for point in known), 0.01)
    room = WIDTH - LABEL
    marks = _scale(most, "failure rate", LABEL, share=True)
    for point in known:
        x, end = (LABEL + shown.place(at, room) for at in (point.at, point.at + step))
        y = HEIGHT * (1 - point.failures / point.calls / most)
        title = f"{moment(point.at)}: {share_text(point.failures / point.calls)} ({point.failures:,}/{point.calls:,})"
        band = ""
        if point.low is not None and point.high is not None:
            title += f", {share_text(point.low)} to {share_text(point.high)}"
            top, foot = (HEIGHT * (1 - min(rate / most, 1)) for rate in (point.high, point.low))
            band = f'<rect class="band" x="{x:.1f}" y="{top:.1f}" width="{end - x:.2f}" height="{foot - top:.1f}"/>'
        marks.append(f'<g><title>{escape(title)}</title>{band}<path class="line" d="M{x:.1f},{y:.1f}H{end:.1f}"/></g>')
    marks += _times(shown, LABEL, room, HEIGHT)
    return SvgPlot(_svg(HEIGHT + BELOW, marks), timed=True)


def timeline(every: Sequence[StateSpan], window: TimeAxis | None = None) -> SvgPlot:
    """States over time, a line for each label, on one linear axis that stops at the last known instant.

    A state that began before the window starts at its edge, equal neighbours are merged, and a dashed line means unknown.
    Widths are durations, but for the state at the end, which is at least `LAST` pixels wide; other spans shorter than a
    pixel are counted in the notes.
    """
    if not every:
        return SvgPlot(SafeHtml())
    shown = window or _around(every)
    by_label = {
        label: _merged(span for span in every if span.label == label) for label in dict.fromkeys(s.label for s in every)
    }
    drawn = list(by_label)[:ROWS]
    room, foot, thin = WIDTH - LABEL, len(drawn) * ROW + 4, 0
    marks = []
    for line, label in enumerate(drawn):
        y = line * ROW
        marks.append(
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end"><title>{escape(label)}</title>{escape(short(label))}</text>'
        )
        marks.append(f'<path class="nothing" d="M{LABEL},{y + 11}H{WIDTH}"/>')
        for span in by_label[label]:
            if span.began > shown.end or (span.ended or shown.end) < shown.begin:
                continue
            x, end = (LABEL + shown.place(at, room) for at in (span.began, span.ended or shown.end))
            if not span.ended:
                x = min(x, end - LAST)
            thin += end - x < 1
            until = f"until {moment(span.ended)}" if span.ended else f"and still at {moment(shown.end)}"
            title = f"{label}: {words(span.state)} from {moment(span.began)} {until}"
            inside = ""
            if len(span.state) * LETTER + 8 < end - x:
                inside = f'<text class="on-state" x="{x + 4:.1f}" y="{y + 15}">{escape(words(span.state))}</text>'
            marks.append(
                f'<g><title>{escape(title)}</title><rect x="{x:.1f}" y="{y + 3}" width="{end - x:.3f}" height="16" '
                f'fill="var(--state-{meaning(span.state)})"/>{inside}</g>'
            )
    marks += _times(shown, LABEL, room, foot)
    present = sorted(
        {span.state for span in every}, key=lambda state: (list(STATES).index(state) if state in STATES else 99, state)
    )
    grouped: dict[str, list[str]] = {}
    for state in present:
        grouped.setdefault(f"var(--state-{meaning(state)})", []).append(words(state))
    short_ones = (
        (
            f"{thin:,} {'span is' if thin == 1 else 'spans are'} shorter than a pixel: the table has {'it' if thin == 1 else 'them'}.",
        )
        if thin
        else ()
    )
    key = [(colour, ", ".join(names)) for colour, names in grouped.items()]
    return SvgPlot(_svg(foot + BELOW, marks, key), _left_out(len(by_label) - len(drawn), "rows") + short_ones)


def heat(cells: Sequence[HeatCell]) -> SvgPlot:
    """Failure rates of rows with columns, with the number of calls in every cell.

    A cell without calls is empty, unlike a rate of 0; a cell with fewer than `FEW` calls has no colour.
    """
    all_down = list(dict.fromkeys(cell.row for cell in cells))
    all_across = list(dict.fromkeys(cell.column for cell in cells))
    down, across = all_down[:ROWS], all_across[:COLUMNS]
    if not down:
        return SvgPlot(SafeHtml())
    found = {(cell.row, cell.column): cell for cell in cells}
    wide = min((WIDTH - LABEL) / len(across), 150)
    tall = ROW + 12
    marks = []
    for place, name in enumerate(across):
        x = LABEL + (place + 0.5) * wide
        first, dash, rest = name.partition("-") if len(name) * LETTER > wide else ("", "", name)
        for y, part in ((14, f"{first}{dash}"), (28, rest)):
            told = escape(short(part, int(wide / LETTER)))
            marks.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle"><title>{escape(name)}</title>{told}</text>')
    for line, label in enumerate(down):
        y = HEAD + line * tall
        marks.append(
            f'<text x="{LABEL - 8}" y="{y + 21}" text-anchor="end"><title>{escape(label)}</title>{escape(short(label))}</text>'
        )
        for place, name in enumerate(across):
            x = LABEL + place * wide
            marks.append(_cell(found.get((label, name), f"{label}, {name}"), x, y, wide, tall))
    shades = [f"over {share_text(rate)}" if rate else "over 0" for rate in SHADES]
    key = [("var(--zero)", "0 %"), *((f"var(--sev-{step})", text) for step, text in enumerate(shades, 1))]
    notes = _left_out(len(all_down) - len(down), "rows") + _left_out(len(all_across) - len(across), "columns")
    said = f"Failures of calls in each cell. Empty: never called; without colour: fewer than {FEW} calls, too few for a claim."
    return SvgPlot(_svg(HEAD + len(down) * tall, marks, key, linked=any(cell.href for cell in cells)), (said, *notes))


def meaning(state: str) -> str:
    """Colour name of a state; the page's property `--state-NAME` has the colour."""
    return STATES.get(state, "unknown")


def level(severity: str) -> int:
    """Colour step of a severity, 1 to 5; 0 if unknown."""
    return LEVELS.get(severity, 0)


def ticks(most: float, least: float = 0.0) -> list[float]:
    """Round numbers from 0 to `most` for an axis, at most five, and at least `least` apart."""
    if most <= 0 or not isfinite(most):
        return [0.0]
    raw = most / 4
    unit = 10.0 ** floor(log10(raw))
    step = max(next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw * 0.999), least)
    return [step * number for number in range(int(most / step * 1.001) + 1)]


def number_text(value: Any) -> str:
    """A number formatted for people."""
    number = float(value)
    if not isfinite(number):
        return str(number)
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:,.3g}" if abs(number) < 100 else f"{number:,.0f}"


def share_text(value: float) -> str:
    """A fraction as a percentage, with a decimal if it is small; 0 and 100 % are only what is none or all."""
    if not value:
        return "0 %"
    percent = value * 100
    if 99.5 <= abs(percent) < 100:
        return f"{max(min(percent, 99.9), -99.9):.1f} %"
    digits = 0 if abs(percent) >= 9.95 else 1 if abs(percent) >= 0.1 else 1 - floor(log10(abs(percent)))
    return f"{percent:.{digits}f}".rstrip("0").rstrip(".") + " %" if digits > 1 else f"{percent:.{digits}f} %"


def moment(value: Any) -> str:
    """A date, or a time to the second, as text."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return value.isoformat() if isinstance(value, date) else str(value)


def beginning(at: date) -> datetime:
    """A time unchanged; a date as its midnight."""
    return at if isinstance(at, datetime) else datetime.combine(at, time())


def words(name: str) -> str:
    """An identifier of the contract as words."""
    return name.replace("_", " ")


def short(text: str, most: int = 27) -> str:
    """A text cut in its middle to a maximum number of letters: names of models begin alike.

    A key of an MCP server's tool is shown without its server, which the tool's name says.
    """
    text = text.partition("|mcp_server=")[0]
    tail = max(most - 1, 1) // 2
    return text if len(text) <= most else f"{text[: max(most - 1, 1) - tail]}…{text[-tail:] if tail else ''}"


def _shade(severity: str) -> str:
    return f"sev-{level(severity)}" if level(severity) else "state-unknown"


def _merged(spans: Iterable[StateSpan]) -> list[StateSpan]:
    """Spans of one label sorted by time, adjacent equal ones merged."""
    found: list[StateSpan] = []
    for span in sorted(spans, key=lambda one: one.began):
        last = found[-1] if found else None
        if last and last.state == span.state and last.ended == span.began:
            found[-1] = last._replace(ended=span.ended)
        else:
            found.append(span)
    return found


def _around(every: Sequence[StateSpan]) -> TimeAxis:
    first, last = min(span.began for span in every), max(span.ended or span.began for span in every)
    if last == first or any(span.ended is None for span in every):
        last += max((last - first) / 20, timedelta(minutes=1))
    return TimeAxis(first, last)


def _cell(cell: HeatCell | str, x: float, y: float, wide: float, tall: float) -> str:
    """Markup of a cell, or of an empty one by its name."""
    if isinstance(cell, str):
        return f'<rect class="empty" x="{x:.1f}" y="{y}" width="{wide - 2:.1f}" height="{tall - 2}"><title>{escape(cell)}: never called</title></rect>'
    few = cell.calls < FEW or cell.rate is None
    step = sum((cell.rate or 0.0) > bound for bound in SHADES)
    fill = "none" if few else f"var(--sev-{step})" if step else "var(--zero)"
    ink = "" if few or not step else f' fill="var(--on-sev-{step})"'
    rate = "–" if cell.rate is None else share_text(cell.rate)
    title = f"{cell.row}, {cell.column}: {rate}, {cell.failures:,} failures of {cell.calls:,} calls" + (
        ", too few for a claim" if few else ""
    )
    box = (
        f'<g><title>{escape(title)}</title><rect class="cell" x="{x:.1f}" y="{y}" width="{wide - 2:.1f}" height="{tall - 2}" fill="{fill}"/>'
        f'<text x="{x + wide / 2 - 1:.1f}" y="{y + 14}" text-anchor="middle"{ink}>{rate}</text>'
        f'<text class="n" x="{x + wide / 2 - 1:.1f}" y="{y + 27}" text-anchor="middle"{ink}>{cell.failures:,}/{cell.calls:,}</text></g>'
    )
    return f'<a href="{escape(cell.href)}">{box}</a>' if cell.href else box


def _whole(values: Iterable[float]) -> bool:
    """True, which is also 1, the least distance of numbers on their axis, if all values are counts."""
    return all(value == int(value) for value in values)


def _tick(value: float, share: bool) -> str:  # noqa: FBT001 - private
    """A number of an axis, with all its digits."""
    return f"{100 * value:g} %" if share else number_text(value)


def _scale(most: float, unit: str, left: float = LEFT, *, least: float = 0.0, share: bool = False) -> list[str]:
    """Lines and numbers of a vertical axis from 0, and its unit."""
    marks = []
    for tick in ticks(most, least):
        y = HEIGHT * (1 - tick / most)
        marks.append(f'<path class="grid" d="M{left},{y:.1f}H{WIDTH}"/>')
        marks.append(
            f'<text class="axis" x="{left - 6}" y="{max(y + 4, 10):.1f}" text-anchor="end">{_tick(tick, share)}</text>'
        )
    middle = HEIGHT / 2
    marks.append(
        f'<text class="axis" x="{left - 44}" y="{middle}" text-anchor="middle" transform="rotate(-90 {left - 44} {middle})">{escape(unit)}</text>'
    )
    return marks


def _times(window: TimeAxis, left: float, room: float, foot: float) -> list[str]:
    """Round times along an axis, and the time range."""
    span = window.end - window.begin
    step = next((one for one in _STEPS if span / one <= 7), _STEPS[-1])
    midnight = window.begin.replace(hour=0, minute=0, second=0, microsecond=0)
    at = midnight + ceil((window.begin - midnight) / step) * step
    marks, shown_day, last = [], None, -999.0
    while at <= window.end:
        x = left + window.place(at, room)
        clock = at.strftime("%H:%M:%S" if step < timedelta(minutes=1) else "%H:%M")
        day = at.strftime("%Y-%m-%d")
        text = day if step >= timedelta(days=1) else clock if day == shown_day else f"{day[5:]} {clock}"
        shown_day = day
        half = len(text) * LETTER / 2
        middle = min(max(x, left + half), left + room - half)
        marks.append(f'<path class="grid" d="M{x:.1f},{foot}v4"/>')
        if middle - half > last:
            marks.append(f'<text class="axis" x="{middle:.1f}" y="{foot + 16}" text-anchor="middle">{text}</text>')
            last = middle + half + LETTER
        at += step
    ends = f"{moment(window.begin)} to {moment(window.end)}, UTC"
    marks.append(f'<text class="axis" x="{left + room / 2:.0f}" y="{foot + 32}" text-anchor="middle">{ends}</text>')
    return marks


def _left_out(number: int, what: str) -> tuple[str, ...]:
    return (f"{number:,} more {what} are not in the plot.",) if number > 0 else ()


def _svg(height: float, marks: Iterable[str], key: Sequence[tuple[str, str]] = (), *, linked: bool = False) -> SafeHtml:
    """The SVG element, with a legend below."""
    lines, x, y = [], 0.0, height + 12
    for colour, text in key:
        wide = 20 + len(text) * LETTER + 14
        if x and x + wide > WIDTH:
            x, y = 0.0, y + 18
        lines.append(
            f'<rect class="edged" x="{x:.1f}" y="{y - 10}" width="12" height="12" fill="{colour}"/><text x="{x + 17:.1f}" y="{y}">{escape(text)}</text>'
        )
        x += wide
    whole = y + 6 if key else height
    role = "group" if linked else "img"
    return SafeHtml(
        f'<svg class="plot" viewBox="0 0 {WIDTH} {whole:.0f}" role="{role}" preserveAspectRatio="xMinYMin">{"".join(marks)}{"".join(lines)}</svg>'
    )
