"""Wilson's score interval: what a success rate may well be, given how few calls stand behind it.

Three of three is no proof of perfection. Two models are told apart when the lower bound of one lies above the upper
bound of the other (docs/design/semantics.md#models).
"""

from __future__ import annotations

from math import sqrt

Z_90 = 1.6448536269514722
"""Standard deviations that hold 90 % of a normal distribution."""


def wilson_bounds(successes: int, trials: int, z: float = Z_90) -> tuple[float, float]:
    """Lower and upper bound of the rate behind `successes` of `trials`, each 0 to 1; (0, 1) without a trial.

    Raises:
        ValueError: fewer than no successes, or more than trials.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes of {trials} trials cannot be")
    if not trials:
        return 0.0, 1.0
    rate = successes / trials
    square = z * z
    middle = rate + square / (2 * trials)
    spread = z * sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    scale = 1 + square / trials
    lower = (middle - spread) / scale if successes else 0.0  # exact at the ends, where rounding would miss the rate
    upper = (middle + spread) / scale if successes < trials else 1.0
    return max(0.0, lower), min(1.0, upper)
