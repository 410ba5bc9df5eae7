"""The report as text: a table, and below it what each figure is made of."""

from __future__ import annotations

from bench_result import Report, Row, Series

NOISY = 0.2
"""Spread of the runs above which the reader is warned."""

VERDICT = {True: "met", False: "MISSED", None: ""}


def render(report: Report) -> str:
    """The whole report for a terminal."""
    parts = ["  ".join(f"{key}: {value}" for key, value in report.machine.items())]
    if report.rows:
        parts.append(_table(report.rows, judged=report.judged))
        parts.append("\n".join(_detail(number, row) for number, row in enumerate(report.rows, 1)))
    parts.extend(f"not measured: {name}: {reason}" for name, reason in report.skipped.items())
    return "\n\n".join(part for part in parts if part)


def number(value: float) -> str:
    """A figure with as many digits as it deserves."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 100 else f"{value:.3g}"


def _shown(series: Series) -> tuple[str, str]:
    unit = "" if series.unit == "ratio" else f" {series.unit}"
    return f"{number(series.median)}{unit}", f"{number(min(series.runs))}-{number(max(series.runs))}"


def _table(rows: list[Row], *, judged: bool) -> str:
    cells = [("", "figure", "against", "median", "min-max", "n", "target", "")]
    for count, row in enumerate(rows, 1):
        median, span = _shown(row.figure)
        target = "" if row.target is None else str(row.target)
        runs = str(len(row.figure.runs))
        verdict = VERDICT[row.met] if judged or row.met is None else "too short to say"
        cells.append((str(count), row.title, row.against, median, span, runs, target, verdict))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _detail(count: int, row: Row) -> str:
    lines = [f"{count}. {row.name}"]
    for name, series in row.behind.items():
        median, span = _shown(series)
        lines.append(f"   {name}: {median} ({span})")
    if row.figure.spread > NOISY:
        lines.append(
            f"   noisy: the runs differ by {row.figure.spread:.0%} of their median; measure on a quieter machine"
        )
    lines.extend(f"   {note}" for note in row.notes)
    return "\n".join(lines)
