"""Shares of a whole in two periods, with the interval of their change."""

from __future__ import annotations

from math import hypot
from typing import NamedTuple

from ..projections.tool.models import wilson_bounds
from .plots import FEW

Z_95 = 1.959964


class Share(NamedTuple):
    """How many of how many, in a period and before."""

    hits: int = 0
    trials: int = 0
    hits_before: int = 0
    trials_before: int = 0

    @property
    def change(self) -> tuple[float, float, float] | None:
        """Change of the rate with its 95 % interval (Newcombe); None where a period has too few for a claim."""
        if min(self.trials, self.trials_before) < FEW:
            return None
        rate, was = self.hits / self.trials, self.hits_before / self.trials_before
        low, high = wilson_bounds(self.hits, self.trials, Z_95)
        low0, high0 = wilson_bounds(self.hits_before, self.trials_before, Z_95)
        return rate - was, rate - was - hypot(rate - low, high0 - was), rate - was + hypot(high - rate, was - low0)

    def verdict(self, *, more_is_worse: bool = True) -> str:
        """`worse` or `better` where the interval of the change leaves out 0."""
        change = self.change
        if change is None or change[1] <= 0 <= change[2]:
            return ""
        return "worse" if (change[0] > 0) is more_is_worse else "better"
