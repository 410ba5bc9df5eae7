"""Choice among thresholds: cost of each by false alarms and misses, the cheapest, and its price.

The choice uses some of the evaluated sessions and is checked on the others, which are held out: the best of many
combinations looks better than it is on the sessions used to choose it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import sqrt
from statistics import median
from typing import Any, NamedTuple

from ...projections.tool.models import Z_95, wilson_bounds
from .labels import Truth

LEAST = 10
"""Minimum number of healthy and of stuck sessions for a choice, and also for its check."""

HOLD_OUT = 0.3
"""Default fraction of the evaluated sessions that are held out."""

Interval = tuple[float, float]


class Trial(NamedTuple):
    """Combination of thresholds and its results.

    Attributes:
        values: the thresholds, by their path in the rules.
        in_force: True for the rules in force, which the others are compared with.
        alarms: number of alarms in all sessions.
        alarmed: healthy sessions with an alarm, with the number of the call of the first alarm.
        caught: the same for stuck sessions with an alarm.
        for_nothing: calls that were asked about or refused although they worked; None for patterns.
    """

    values: Mapping[str, Any]
    in_force: bool
    alarms: int
    alarmed: Mapping[str, int]
    caught: Mapping[str, int]
    for_nothing: int | None = None

    def score(self, truth: Truth) -> Score:
        """Counts over some sessions."""
        caught = [call for session, call in self.caught.items() if session in truth.stuck]
        return Score(
            len(truth.healthy),
            len(truth.healthy & self.alarmed.keys()),
            len(truth.stuck),
            len(caught),
            median(caught) if caught else None,
        )


class Score(NamedTuple):
    """Counts of a combination over some sessions.

    Attributes:
        healthy: number of healthy sessions.
        alarmed: number of healthy sessions with an alarm.
        stuck: number of stuck sessions.
        caught: number of stuck sessions with an alarm.
        at_call: median number of the call of the first alarm in these; None if there are none.
    """

    healthy: int
    alarmed: int
    stuck: int
    caught: int
    at_call: float | None = None

    @property
    def missed(self) -> int:
        """Number of stuck sessions without an alarm."""
        return self.stuck - self.caught

    @property
    def false_alarms(self) -> float:
        """Fraction of healthy sessions with an alarm, 0 to 1."""
        return self.alarmed / self.healthy if self.healthy else 0.0

    @property
    def recall(self) -> float:
        """Fraction of stuck sessions with an alarm, 0 to 1."""
        return self.caught / self.stuck if self.stuck else 0.0

    @property
    def enough(self) -> bool:
        """True if there are enough sessions for a choice."""
        return min(self.healthy, self.stuck) >= LEAST

    @property
    def false_alarms_95(self) -> Interval:
        """95 % interval of `false_alarms` (Wilson)."""
        return wilson_bounds(self.alarmed, self.healthy, Z_95)

    @property
    def recall_95(self) -> Interval:
        """95 % interval of `recall` (Wilson)."""
        return wilson_bounds(self.caught, self.stuck, Z_95)


class Weights(NamedTuple):
    """Costs of a false alarm and of a miss, each counted once per session.

    Attributes:
        false_alarm: cost of an alarm in a healthy session.
        miss: cost of a stuck session without an alarm.
        balanced: True by default: both rates weigh the same, so the choice maximises Youden's J.
    """

    false_alarm: float
    miss: float
    balanced: bool = False

    def cost(self, score: Score) -> float:
        """Cost of a combination."""
        return self.false_alarm * score.alarmed + self.miss * score.missed


def weights(truth: Truth, false_alarm: float | None = None, miss: float | None = None) -> Weights:
    """Weights as given, a missing one is 1; without any, both rates over the sessions weigh the same."""
    if false_alarm is None and miss is None:
        return Weights(1.0, max(1, len(truth.healthy)) / max(1, len(truth.stuck)), balanced=True)
    return Weights(1.0 if false_alarm is None else false_alarm, 1.0 if miss is None else miss)


class Split(NamedTuple):
    """Evaluated sessions in two parts.

    Attributes:
        by: sessions used to choose.
        held_out: sessions used to check the choice.
    """

    by: Truth
    held_out: Truth


def split(truth: Truth, share: float, seed: int) -> Split:
    """Hold out a fraction of the healthy and of the stuck sessions, selected by `seed` and their ids."""
    held = frozenset(
        session
        for kind in (truth.healthy, truth.stuck)
        for session in sorted(kind, key=lambda name: _drawn(name, seed))[: round(len(kind) * share)]
    )
    every = truth.healthy | truth.stuck
    return Split(truth.among(every - held), truth.among(held))


def _drawn(session: str, seed: int) -> bytes:
    return blake2b(f"{seed}\x1f{session}".encode(errors="surrogatepass"), digest_size=16).digest()


def best(trials: Sequence[Trial], truth: Truth) -> list[Trial]:
    """Pareto-optimal combinations over some sessions, by false alarms and stuck sessions caught."""
    scored = [(one, one.score(truth)) for one in trials]
    return [
        one
        for one, score in scored
        if not any(
            other.alarmed <= score.alarmed
            and other.caught >= score.caught
            and (other.alarmed, other.caught) != (score.alarmed, score.caught)
            for _, other in scored
        )
    ]


def recommended(trials: Sequence[Trial], truth: Truth, weigh: Weights, least: int = LEAST) -> Trial | None:
    """Combination with the lowest cost over some sessions; None if there are too few sessions.

    Ties are resolved in favour of the rules in force, then of fewer alarms, then of the first.
    """
    if min(len(truth.healthy), len(truth.stuck)) < least:
        return None
    return min(trials, key=lambda one: (weigh.cost(one.score(truth)), not one.in_force, one.alarms), default=None)


class Change(NamedTuple):
    """Differences of a combination from the rules in force, over some sessions.

    Attributes:
        before: score of the rules in force.
        after: score of the combination.
        false_alarms: change of the fraction of healthy sessions with an alarm.
        false_alarms_95: its 95 % interval (Newcombe, paired).
        recall: change of the fraction of stuck sessions with an alarm.
        recall_95: its 95 % interval.
        cost: change of the cost.
        cost_95: its 95 % interval, from both.
        both_catch: number of stuck sessions that both catch.
        calls_later: median number of calls by which it catches those later (negative: earlier); None without any.
    """

    before: Score
    after: Score
    false_alarms: float
    false_alarms_95: Interval
    recall: float
    recall_95: Interval
    cost: float
    cost_95: Interval
    both_catch: int
    calls_later: float | None

    @property
    def verdict(self) -> str:
        """Verdict as text: better or worse only if the intervals exclude 0."""
        if not self.after.enough:
            return "too few sessions"
        low, high = self.cost_95
        return "better" if high < 0 else "worse" if low > 0 else "no change shown"


def change(before: Trial, after: Trial, truth: Truth, weigh: Weights) -> Change:
    """Differences of one combination from another over the same sessions."""
    first, second = before.score(truth), after.score(truth)
    alarms, alarms_95 = _changed(truth.healthy, before.alarmed, after.alarmed)
    recall, recall_95 = _changed(truth.stuck, before.caught, after.caught)
    both = truth.stuck & before.caught.keys() & after.caught.keys()
    parts = (
        (weigh.false_alarm * first.healthy, alarms, alarms_95),
        (weigh.miss * first.stuck, -recall, (-recall_95[1], -recall_95[0])),
    )
    # For a sum of independent changes the squared distances to their bounds add up, as in Newcombe's interval.
    cost = sum(weight * middle for weight, middle, _ in parts)
    low = cost - sqrt(sum((weight * (middle - bounds[0])) ** 2 for weight, middle, bounds in parts))
    high = cost + sqrt(sum((weight * (bounds[1] - middle)) ** 2 for weight, middle, bounds in parts))
    return Change(
        before=first,
        after=second,
        false_alarms=alarms,
        false_alarms_95=alarms_95,
        recall=recall,
        recall_95=recall_95,
        cost=cost,
        cost_95=(low, high),
        both_catch=len(both),
        calls_later=median(after.caught[one] - before.caught[one] for one in both) if both else None,
    )


class Choice(NamedTuple):
    """Combination chosen on some sessions and checked on others.

    Attributes:
        trial: the combination; the rules in force if nothing better stood the check; None: too few sessions.
        price_by: its change on the sessions used to choose; None if it is in force.
        price: the same on the sessions held out; None if there are none.
        refuted: the combination that costs least on the sessions used to choose, but surely more on those held out.
    """

    trial: Trial | None
    price_by: Change | None = None
    price: Change | None = None
    refuted: Trial | None = None


def choose(trials: Sequence[Trial], parts: Split, weigh: Weights) -> Choice:
    """Choose the combination that costs least; the rules in force if sessions held out show that it costs more."""
    one = recommended(trials, parts.by, weigh)
    if one is None or one.in_force:
        return Choice(one)
    in_force = next(trial for trial in trials if trial.in_force)
    price = change(in_force, one, parts.held_out, weigh) if parts.held_out.sources else None
    if price is not None and price.verdict == "worse":
        return Choice(in_force, refuted=one)
    return Choice(one, change(in_force, one, parts.by, weigh), price)


def _changed(sessions: frozenset[str], before: Mapping[str, int], after: Mapping[str, int]) -> tuple[float, Interval]:
    """Change of the fraction of sessions in a set, and its interval."""
    first, second = sessions & before.keys(), sessions & after.keys()
    counts = len(first & second), len(first - second), len(second - first), len(sessions - first - second)
    return (len(second) - len(first)) / max(1, len(sessions)), paired_95(*counts)


def paired_95(both: int, only_before: int, only_after: int, neither: int) -> Interval:
    """95 % interval of the difference of two fractions of the same sessions (Newcombe, paired); (-1, 1) without any."""
    count = both + only_before + only_after + neither
    if not count:
        return -1.0, 1.0
    old, new = (both + only_before) / count, (both + only_after) / count
    old_low, old_high = wilson_bounds(both + only_before, count, Z_95)
    new_low, new_high = wilson_bounds(both + only_after, count, Z_95)
    together = _correlation(both, only_before, only_after, neither)
    change = new - old
    low = _distance(new - new_low, old_high - old, together)
    high = _distance(new_high - new, old - old_low, together)
    return max(-1.0, change - low), min(1.0, change + high)


def _distance(one: float, other: float, together: float) -> float:
    return sqrt(max(0.0, one * one - 2 * together * one * other + other * other))


def _correlation(both: int, only_before: int, only_after: int, neither: int) -> float:
    """Correlation of the two fractions, with Newcombe's correction for small counts."""
    count = both + only_before + only_after + neither
    margins = (both + only_before) * (only_after + neither) * (both + only_after) * (only_before + neither)
    if not margins:
        return 0.0
    product = both * neither - only_before * only_after
    return (max(product - count / 2, 0.0) if product > 0 else product) / sqrt(margins)


def counted(sessions: Iterable[str], truth: Truth) -> dict[str, int]:
    """Number of sessions by source of their label."""
    found: dict[str, int] = {}
    for session in sessions:
        if session in truth.sources:
            found[truth.sources[session]] = found.get(truth.sources[session], 0) + 1
    return found
