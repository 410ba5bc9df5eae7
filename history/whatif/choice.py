"""The choice among thresholds: what each one costs in false alarms and in misses, which costs least, and its price.

Chosen is by some of the judged sessions and checked by the others, which are held out: whatever is best of many by the
sessions that it was chosen by looks better than it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import sqrt
from statistics import median
from typing import Any, NamedTuple

from ...projections.tool.models import wilson_bounds
from .labels import Truth

Z_95 = 1.959963984540054
"""Standard deviations that hold 95 % of a normal distribution."""

LEAST = 10
"""Healthy sessions, and stuck ones, that a choice needs at least, and its check as many."""

HOLD_OUT = 0.3
"""Share of the judged sessions that are held out, unless told otherwise."""

Interval = tuple[float, float]


class Trial(NamedTuple):
    """One combination of thresholds, and what came of it.

    Attributes:
        values: the thresholds, by their path in the rules.
        in_force: they are those that the others are compared with.
        alarms: alarms in all, in whatever session.
        alarmed: healthy sessions with an alarm, and which call of theirs the first one came at.
        caught: stuck sessions with an alarm, likewise.
        for_nothing: calls that were asked about or refused and did their work; None where patterns are tried.
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
    """What a combination does to some sessions.

    Attributes:
        healthy: healthy sessions.
        alarmed: of them, those with an alarm.
        stuck: stuck sessions.
        caught: of them, those with an alarm.
        at_call: median of the calls at which those got their first one; None: none did.
    """

    healthy: int
    alarmed: int
    stuck: int
    caught: int
    at_call: float | None = None

    @property
    def missed(self) -> int:
        """Stuck sessions without an alarm."""
        return self.stuck - self.caught

    @property
    def false_alarms(self) -> float:
        """Share of healthy sessions with an alarm, 0 to 1."""
        return self.alarmed / self.healthy if self.healthy else 0.0

    @property
    def recall(self) -> float:
        """Share of stuck sessions with an alarm, 0 to 1."""
        return self.caught / self.stuck if self.stuck else 0.0

    @property
    def enough(self) -> bool:
        """Whether there are sessions enough to say anything by."""
        return min(self.healthy, self.stuck) >= LEAST

    @property
    def false_alarms_95(self) -> Interval:
        """What the share of healthy sessions with an alarm may well be (Wilson, 95 %)."""
        return wilson_bounds(self.alarmed, self.healthy, Z_95)

    @property
    def recall_95(self) -> Interval:
        """What the share of stuck sessions with an alarm may well be (Wilson, 95 %)."""
        return wilson_bounds(self.caught, self.stuck, Z_95)


class Weights(NamedTuple):
    """What a false alarm and a miss cost, each counted once for a session.

    Attributes:
        false_alarm: an alarm in a healthy session.
        miss: a stuck session without one.
        balanced: nobody has said it: both shares weigh alike, so that the choice is that of Youden's J.
    """

    false_alarm: float
    miss: float
    balanced: bool = False

    def cost(self, score: Score) -> float:
        """What a combination costs."""
        return self.false_alarm * score.alarmed + self.miss * score.missed


def weights(truth: Truth, false_alarm: float | None = None, miss: float | None = None) -> Weights:
    """Weights as given, a missing one is 1; without any both shares weigh alike over some sessions."""
    if false_alarm is None and miss is None:
        return Weights(1.0, max(1, len(truth.healthy)) / max(1, len(truth.stuck)), balanced=True)
    return Weights(1.0 if false_alarm is None else false_alarm, 1.0 if miss is None else miss)


class Split(NamedTuple):
    """Judged sessions in two parts.

    Attributes:
        by: those that are chosen by.
        held_out: those that the choice is checked by.
    """

    by: Truth
    held_out: Truth


def split(truth: Truth, share: float, seed: int) -> Split:
    """Hold out a share of the healthy and of the stuck sessions; which ones follows from `seed` and their ids."""
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
    """Combinations that no other one beats in both over some sessions: fewer false alarms and as many caught."""
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
    """The combination that costs least over some sessions; None where they are too few to choose by.

    Of equal ones the one in force, then that with fewer alarms, then the first: nothing is changed for nothing.
    """
    if min(len(truth.healthy), len(truth.stuck)) < least:
        return None
    return min(trials, key=lambda one: (weigh.cost(one.score(truth)), not one.in_force, one.alarms), default=None)


class Change(NamedTuple):
    """What a combination changes against the one in force, over some sessions.

    Attributes:
        before: the one in force.
        after: the combination.
        false_alarms: change of the share of healthy sessions with an alarm.
        false_alarms_95: what it may well be (Newcombe, paired, 95 %).
        recall: change of the share of stuck sessions with an alarm.
        recall_95: likewise.
        cost: change of the cost.
        cost_95: likewise, from both.
        both_catch: stuck sessions that both catch.
        calls_later: median of the calls by which it catches those later (negative: earlier); None: there are none.
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
        """Whether it is better, in words; only what the intervals leave no doubt about."""
        if not self.after.enough:
            return "too few sessions"
        low, high = self.cost_95
        return "better" if high < 0 else "worse" if low > 0 else "no change shown"


def change(before: Trial, after: Trial, truth: Truth, weigh: Weights) -> Change:
    """What one combination changes against another over some sessions, each judged under both."""
    first, second = before.score(truth), after.score(truth)
    alarms, alarms_95 = _changed(truth.healthy, before.alarmed, after.alarmed)
    recall, recall_95 = _changed(truth.stuck, before.caught, after.caught)
    both = truth.stuck & before.caught.keys() & after.caught.keys()
    parts = (
        (weigh.false_alarm * first.healthy, alarms, alarms_95),
        (weigh.miss * first.stuck, -recall, (-recall_95[1], -recall_95[0])),
    )
    # In a sum of independent changes the squares of the distances to their bounds add up, as in Newcombe's interval.
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


def _changed(sessions: frozenset[str], before: Mapping[str, int], after: Mapping[str, int]) -> tuple[float, Interval]:
    """Change of the share of sessions that have something, and its interval."""
    first, second = sessions & before.keys(), sessions & after.keys()
    counts = len(first & second), len(first - second), len(second - first), len(sessions - first - second)
    return (len(second) - len(first)) / max(1, len(sessions)), paired_95(*counts)


def paired_95(both: int, only_before: int, only_after: int, neither: int) -> Interval:
    """Interval of the change between two shares of the same sessions (Newcombe, paired, 95 %); (-1, 1) of none."""
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
    """How much the two shares go together, with Newcombe's correction for small counts."""
    count = both + only_before + only_after + neither
    margins = (both + only_before) * (only_after + neither) * (both + only_after) * (only_before + neither)
    if not margins:
        return 0.0
    product = both * neither - only_before * only_after
    return (max(product - count / 2, 0.0) if product > 0 else product) / sqrt(margins)


def counted(sessions: Iterable[str], truth: Truth) -> dict[str, int]:
    """How many sessions are known from which source."""
    found: dict[str, int] = {}
    for session in sessions:
        if session in truth.sources:
            found[truth.sources[session]] = found.get(truth.sources[session], 0) + 1
    return found
