"""The report of a campaign: how often each blow fell, what was compared, and what was wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Report:
    """What a campaign did and found.

    Attributes:
        options: of the campaign.
        blows: how often each was dealt.
        figures: amounts, by what they are amounts of.
        endings: last lines of processes that ended by themselves and were started again, with their number.
        problems: what is not as without trouble.
    """

    options: dict[str, Any]
    blows: Counter[str] = field(default_factory=Counter)
    figures: dict[str, float] = field(default_factory=dict)
    endings: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "options": self.options,
            "ok": not self.problems,
            "blows": dict(self.blows),
            "figures": self.figures,
            "endings": dict(self.endings),
            "problems": self.problems,
        }


def render(report: Report) -> str:
    """A table for a terminal."""
    lines = ["  ".join(f"{name} {value}" for name, value in report.options.items()), ""]
    lines += [f"  {count:>9,}  {blow}" for blow, count in sorted(report.blows.items())]
    lines += ["", *(f"  {value:>9,.10g}  {name}" for name, value in report.figures.items())]
    if report.endings:
        lines += ["", "ended by themselves and were started again:"]
        lines += [f"  {count:>9,}  {line}" for line, count in report.endings.most_common()]
    verdict = [f"PROBLEM: {problem}" for problem in report.problems] or ["as without trouble"]
    return "\n".join([*lines, "", *verdict])
