"""Prometheus exposition of one worker's counters.

Labels are bounded: catalogue topics, partitions of this worker, stages, states of the worker, reason codes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..metric_families import by_partition, counters, exposition, gauges
from .metrics import Histogram

if TYPE_CHECKING:
    from .broker_watch import BrokerWatch
    from .engine import Engine

STATES = ("starting", "recovering", "running", "rebalancing", "stopping", "failed")


def exposition_of(engine: Engine) -> Callable[[], bytes]:
    """Return a function that renders the current metrics as text; thread-safe."""
    return exposition(WorkerCollector(engine))


class WorkerCollector(Collector):
    """Collector of an engine's counters."""

    def __init__(self, engine: Engine) -> None:
        """Create a collector of `engine`."""
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        yield from self._work()
        yield from self._durability()
        yield from self._membership()

    def _work(self) -> Iterator[Metric]:
        metrics = self._engine.metrics
        yield by_partition(
            "trustfold_consumer_lag_records", "Records between the last folded one and the log end.", metrics.lag
        )
        yield counters("trustfold_records", "Records folded.", "topic", metrics.records)
        yield counters("trustfold_outputs", "Records written and acknowledged.", "topic", metrics.outputs)
        yield counters(
            "trustfold_dead_letters", "Records that could not be folded.", "reason", metrics.dead_letter_reasons
        )
        yield CounterMetricFamily(
            "trustfold_clamped_times", "Event times cut because they ran ahead.", metrics.folds["clamped"]
        )
        yield CounterMetricFamily(
            "trustfold_untracked_failures", "Failures without a fine key of their own.", metrics.folds["untracked"]
        )
        yield CounterMetricFamily(
            "trustfold_dropped_states", "Idle states dropped from stores and changelogs.", metrics.folds["dropped"]
        )
        yield CounterMetricFamily(
            "trustfold_appended_events", "Events appended because something fell due.", metrics.ticks
        )
        yield CounterMetricFamily(
            "trustfold_offset_jumps",
            "Deliveries beyond the expected offset: records were lost to retention.",
            metrics.offset_jumps,
        )
        yield gauges(
            "trustfold_stream_time_lag_seconds",
            "How far a stage is behind the newest record folded.",
            "stage",
            metrics.stream_lag,
        )
        yield gauges(
            "trustfold_stream_time_lag_most_seconds",
            "The largest such distance of a record when folded.",
            "stage",
            metrics.stream_lag_most,
        )
        yield GaugeMetricFamily(
            "trustfold_worker_skew_seconds",
            "How far this worker is ahead of the slowest other.",
            self._engine.order.skew.seconds,
        )
        yield counters(
            "trustfold_held_seconds", "Time in which records waited for their turn.", "reason", metrics.held_seconds
        )
        yield _histogram("trustfold_fold_seconds", "Time of the fold of one record.", metrics.fold_seconds)
        yield _histogram(
            "trustfold_event_to_decision_seconds",
            "Time between the timestamp of a record and its outputs.",
            metrics.decision_seconds,
        )

    def _durability(self) -> Iterator[Metric]:
        engine, metrics = self._engine, self._engine.metrics
        age = time.monotonic() - engine.durable_at
        yield GaugeMetricFamily("trustfold_checkpoint_age_seconds", "Time since everything folded was durable.", age)
        yield CounterMetricFamily("trustfold_checkpoints", "Checkpoints that wrote something.", metrics.checkpoints)
        yield CounterMetricFamily(
            "trustfold_checkpoint_duration_seconds", "Time spent in them.", metrics.checkpoint_seconds
        )
        yield CounterMetricFamily("trustfold_checkpoint_states", "States written by them.", metrics.checkpoint_keys)
        yield CounterMetricFamily("trustfold_checkpoint_bytes", "Bytes of those states.", metrics.checkpoint_bytes)
        states, size = dict(metrics.states), "trustfold_state_bytes"
        yield gauges("trustfold_states", "Stored states.", "stage", {name: found[0] for name, found in states.items()})
        yield gauges(size, "Bytes of stored states.", "stage", {name: found[1] for name, found in states.items()})
        yield CounterMetricFamily(
            "trustfold_producer_restarts", "Producers replaced after a failed batch.", metrics.producer_restarts
        )

    def _membership(self) -> Iterator[Metric]:
        engine, metrics = self._engine, self._engine.metrics
        yield gauges(
            "trustfold_worker_state",
            "1 for the state the worker is in.",
            "state",
            {state: float(state == engine.state) for state in STATES},
        )
        if metrics.rules:
            yield gauges(
                "trustfold_rules_info",
                "1 for the rules of this worker's files and environment.",
                "fingerprint",
                {metrics.rules: 1.0},
            )
        yield GaugeMetricFamily("trustfold_assigned_partitions", "Stage partitions of this worker.", metrics.assigned)
        yield CounterMetricFamily("trustfold_rebalances", "Assignments taken.", metrics.rebalances)
        yield CounterMetricFamily(
            "trustfold_tenures_lost", "Assignments lost before a last checkpoint.", metrics.rebalances_lost
        )
        yield CounterMetricFamily("trustfold_recoveries", "Recoveries completed.", metrics.recoveries)
        yield CounterMetricFamily(
            "trustfold_recovery_duration_seconds",
            "Time from an assignment to the first record, added up.",
            metrics.recovery_seconds,
        )
        yield CounterMetricFamily(
            "trustfold_recovered_records", "Changelog records read back.", metrics.recovered_records
        )
        yield CounterMetricFamily(
            "trustfold_stale_records",
            "Changelog records of workers that had lost their partition.",
            metrics.stale_records,
        )
        yield from families_of(engine.watch)


def families_of(watch: BrokerWatch) -> Iterator[Metric]:
    """Yield the metrics of a broker monitor."""
    yield GaugeMetricFamily("trustfold_broker_up", "1 while a broker answers.", float(watch.lost_since is None))
    if watch.answered_at:
        age = time.monotonic() - watch.answered_at
        yield GaugeMetricFamily("trustfold_broker_answer_age_seconds", "Time since a broker answered the watch.", age)
    without = sum(map(len, watch.leaderless.values()))
    yield GaugeMetricFamily("trustfold_leaderless_partitions", "Partitions without a leader.", without)


def _histogram(name: str, text: str, found: Histogram) -> Metric:
    reached, buckets = 0, []
    for bound, count in zip(_bounds(found.bounds), list(found.counts), strict=True):
        reached += count
        buckets.append((bound, reached))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=found.total)


def _bounds(bounds: Iterable[float]) -> Iterator[str]:
    yield from (f"{bound:g}" for bound in bounds)
    yield "+Inf"
