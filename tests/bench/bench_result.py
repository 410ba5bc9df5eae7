"""What a measurement says: runs, their median and range, the target, and the JSON of a whole report."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

FORMAT = 1
"""Version of the JSON; raised when a field changes its meaning."""


class CannotMeasure(Exception):
    """A group of rows cannot be measured here; the message says why and what to do."""


@dataclass(frozen=True)
class Series:
    """Figures of the same thing from several runs, in the order of the runs."""

    unit: str
    """`ratio`, or what follows the number."""
    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.runs)

    @property
    def spread(self) -> float:
        """Range of the runs as a share of their median: how noisy it was."""
        return (max(self.runs) - min(self.runs)) / self.median if self.median else 0.0

    def as_json(self) -> dict[str, Any]:
        """Unit, median, range and every run."""
        return {
            "unit": self.unit,
            "median": round(self.median, 4),
            "min": round(min(self.runs), 4),
            "max": round(max(self.runs), 4),
            "runs": [round(run, 4) for run in self.runs],
        }


@dataclass(frozen=True)
class Target:
    """What docs/design/quality.md#benchmarks asks of a figure."""

    value: float
    at_least: bool
    """Whether the figure must reach the value; else it must not pass it."""

    def met(self, figure: float) -> bool:
        """Whether the figure is as it should be."""
        return figure >= self.value if self.at_least else figure <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.value:g}"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: stable, for whoever compares reports: `kafka/worker:bare`.
        title: what is measured.
        against: what it is compared with, in the same run.
        figure: the ratio, or the time.
        target: None for a row that only informs.
        behind: the figures that the ratio is made of, by name.
        notes: what a reader must know to read it right.
    """

    name: str
    title: str
    against: str
    figure: Series
    target: Target | None = None
    behind: dict[str, Series] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None without one."""
        return None if self.target is None else self.target.met(self.figure.median)

    def as_json(self, *, judged: bool = True) -> dict[str, Any]:
        """The row, for machines; `met` is null where nobody may judge."""
        return {
            "name": self.name,
            "title": self.title,
            "against": self.against,
            "figure": self.figure.as_json(),
            "target": None if self.target is None else str(self.target),
            "met": self.met if judged else None,
            "behind": {name: series.as_json() for name, series in self.behind.items()},
            "notes": self.notes,
        }


@dataclass
class Report:
    """Everything one call of the benchmarks found."""

    machine: dict[str, Any]
    options: dict[str, Any]
    judged: bool = True
    """Whether the runs were long enough to say that a target is met or missed."""
    rows: list[Row] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Reason, by the name of a group of rows that could not be measured."""

    def as_json(self) -> dict[str, Any]:
        """The report, for machines."""
        return {
            "format": FORMAT,
            "machine": self.machine,
            "options": self.options,
            "rows": [row.as_json(judged=self.judged) for row in self.rows],
            "skipped": self.skipped,
        }


def pairwise(first: list[float], second: list[float]) -> Series:
    """Ratio of runs that were made next to each other, so that what slows the machine down cancels."""
    return Series("ratio", tuple(one / other for one, other in zip(first, second, strict=True)))
