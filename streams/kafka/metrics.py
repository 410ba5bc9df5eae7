"""Counters of one worker as plain numbers; exporters read the attributes.

All counts are since the start of the process; times are seconds, sizes bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

# Seconds for one record; a session event takes about 26 µs
FOLD_BUCKETS = (0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.001, 0.005, 0.025, 0.1)

# Seconds; the target is 20 ms at half load, and a backlog shows in the last ones
DECISION_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0)


class BoundedHistogram:
    """Number of observations by upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Start with no observation."""
        self.bounds = bounds  # upper bounds, ascending
        # observations at or below each bound and above the one before; the last entry is above all
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0  # sum of the observations

    def observe(self, value: float, times: int) -> None:
        """Count a value as observed `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


@dataclass(slots=True)
class LaneMetrics:
    """Counters of a worker; `exposition` says what each one counts, and under which name it is exported."""

    records: Counter[str] = field(default_factory=Counter)  # by catalogue topic name
    outputs: Counter[str] = field(default_factory=Counter)  # by catalogue topic name; includes dead letters
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    checkpoint_keys: int = 0  # states written by checkpoints
    checkpoint_bytes: int = 0
    ticks: int = 0
    lag: dict[tuple[str, int], int] = field(default_factory=dict)  # by catalogue topic name and partition
    assigned: int = 0
    rebalances: int = 0
    recovered_records: int = 0
    recovery_seconds: float = 0.0
    stale_records: int = 0
    offset_jumps: int = 0
    # seconds of log time between the newest folded record of any stage and the oldest one that a stage has not folded,
    # by stage
    stream_lag: dict[str, float] = field(default_factory=dict)
    # the largest such distance at which a record was folded, by stage
    stream_lag_most: dict[str, float] = field(default_factory=dict)
    held_seconds: dict[str, float] = field(default_factory=dict)  # by reason: `fetch`, `stage` or `workers`
    # counters of the folds, by name: `untracked`, failures counted only in their tool's key because the tool had its
    # most fine keys (`trust.max_fine_keys`); `clamped`, event times ahead of their record; `late` and `late_outcomes`,
    # events and outcomes more than a minute older than an earlier one of their key; `dropped`, idle states that were
    # dropped
    folds: Counter[str] = field(default_factory=Counter)
    recoveries: int = 0
    rebalances_lost: int = 0  # tenures that ended before their last checkpoint
    dead_letter_reasons: Counter[str] = field(default_factory=Counter)  # by reason code
    fold_seconds: BoundedHistogram = field(default_factory=lambda: BoundedHistogram(FOLD_BUCKETS))
    decision_seconds: BoundedHistogram = field(default_factory=lambda: BoundedHistogram(DECISION_BUCKETS))
    states: dict[str, tuple[int, int]] = field(default_factory=dict)  # number and bytes, by stage
    producer_restarts: int = 0
    rules: str = ""  # name of the rules of this worker's files and environment; empty before the first assignment
