"""Wilson's interval: what a success rate may well be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustfold.projections.tool.models import wilson_bounds


@given(st.integers(0, 10_000).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_the_bounds_contain_the_rate(counts: tuple[int, int]) -> None:
    """Whatever was seen lies between the bounds, and the bounds between 0 and 1."""
    successes, trials = counts
    lower, upper = wilson_bounds(successes, trials)
    assert 0 <= lower <= upper <= 1
    if trials:
        assert lower <= successes / trials <= upper


@given(st.integers(1, 500), st.integers(1, 500))
def test_more_calls_tell_more(successes: int, failures: int) -> None:
    """Ten times as many calls at the same rate narrow the interval."""
    few = wilson_bounds(successes, successes + failures)
    many = wilson_bounds(10 * successes, 10 * (successes + failures))
    assert many[1] - many[0] < few[1] - few[0]


@pytest.mark.parametrize(
    ("successes", "trials", "z", "lower", "upper"),
    [
        (5, 5, 1.959964, 0.5655, 1.0),
        (0, 5, 1.959964, 0.0, 0.4345),
        (50, 100, 1.959964, 0.4038, 0.5962),
        (0, 0, 1.6448536, 0.0, 1.0),
        (3, 3, 1.6448536, 0.5258, 1.0),
    ],
)
def test_known_values(successes: int, trials: int, z: float, lower: float, upper: float) -> None:
    """Values that any table of the interval gives."""
    assert wilson_bounds(successes, trials, z) == pytest.approx((lower, upper), abs=1e-4)


@given(st.integers(0, 1000).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_success_and_failure_mirror_each_other(counts: tuple[int, int]) -> None:
    """The bounds of the failure rate are those of the success rate, mirrored."""
    successes, trials = counts
    lower, upper = wilson_bounds(successes, trials)
    assert wilson_bounds(trials - successes, trials) == pytest.approx((1 - upper, 1 - lower), abs=1e-9)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3), (0, -1)])
def test_impossible_counts_are_refused(successes: int, trials: int) -> None:
    """More successes than trials, or fewer than none, are a caller's mistake."""
    with pytest.raises(ValueError, match="cannot be"):
        wilson_bounds(successes, trials)
