"""Prometheus exposition of one worker's counters.

Labels are bounded: catalogue topics, partitions of this worker, stages, states of the worker, reason codes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..metric_families import by_partition, counters, exposition, gauges
from .metrics import BoundedHistogram

if TYPE_CHECKING:
    from .broker_watch import BrokerWatch
    from .engine import WorkerEngine

STATES = ("starting", "recovering", "running", "rebalancing", "stopping", "failed")


def exposition_of(engine: WorkerEngine) -> Callable[[], bytes]:
    """Return a function that renders the current metrics as text; thread-safe."""
    return exposition(WorkerCollector(engine))


class WorkerCollector(Collector):
    """Collector of an engine's counters."""

    def __init__(self, engine: WorkerEngine) -> None:
        """Create a collector of `engine`."""
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        yield from self._work()
        yield from self._durability()
        yield from self._membership()

    def _work(self) -> Iterator[Metric]:
        metrics, folds = self._engine.metrics, self._engine.metrics.folds
        lag = "Records between the last folded one and the log end."
        yield by_partition("trustfold_consumer_lag_records", lag, metrics.lag)
        for name, text, label, labelled in (
            ("trustfold_records", "Records folded.", "topic", metrics.records),
            ("trustfold_outputs", "Records written and acknowledged.", "topic", metrics.outputs),
            ("trustfold_dead_letters", "Records that could not be folded.", "reason", metrics.dead_letter_reasons),
            (
                "trustfold_publisher_mistakes",
                "Sampled events that are keyed wrongly.",
                "kind",
                self._engine.samples.mistakes,
            ),
            ("trustfold_held_seconds", "Time in which records waited for their turn.", "reason", metrics.held_seconds),
        ):
            yield counters(name, text, label, labelled)
        for name, text, value in (
            ("trustfold_clamped_times", "Event times cut because they ran ahead.", folds["clamped"]),
            (
                "trustfold_late_events",
                "Events over a minute older than an earlier one of their session.",
                folds["late"],
            ),
            (
                "trustfold_late_outcomes",
                "Outcomes over a minute older than an earlier one of their key.",
                folds["late_outcomes"],
            ),
            ("trustfold_untracked_failures", "Failures without a fine key of their own.", folds["untracked"]),
            ("trustfold_dropped_states", "Idle states dropped from stores and changelogs.", folds["dropped"]),
            ("trustfold_appended_events", "Events appended because something fell due.", metrics.ticks),
            (
                "trustfold_offset_jumps",
                "Deliveries beyond the expected offset: records were lost to retention.",
                metrics.offset_jumps,
            ),
        ):
            yield CounterMetricFamily(name, text, value)
        behind, most = "trustfold_stream_time_lag_seconds", "trustfold_stream_time_lag_most_seconds"
        yield gauges(behind, "How far a stage is behind the newest record folded.", "stage", metrics.stream_lag)
        yield gauges(most, "The largest such distance of a record when folded.", "stage", metrics.stream_lag_most)
        ahead = "How far the log is ahead of this machine's clock."
        yield GaugeMetricFamily("trustfold_log_ahead_seconds", ahead, self._engine.clock.ahead_s)
        skew = self._engine.order.skew.seconds
        yield GaugeMetricFamily(
            "trustfold_worker_skew_seconds", "How far this worker is ahead of the slowest other.", skew
        )
        yield _histogram("trustfold_fold_seconds", "Time of the fold of one record.", metrics.fold_seconds)
        until = "Time between the timestamp of a record and its outputs."
        yield _histogram("trustfold_event_to_decision_seconds", until, metrics.decision_seconds)

    def _durability(self) -> Iterator[Metric]:
        engine, metrics = self._engine, self._engine.metrics
        age = time.monotonic() - engine.durable_at
        yield GaugeMetricFamily("trustfold_checkpoint_age_seconds", "Time since everything folded was durable.", age)
        for name, text, value in (
            ("trustfold_checkpoints", "Checkpoints that wrote something.", metrics.checkpoints),
            ("trustfold_checkpoint_duration_seconds", "Time spent in them.", metrics.checkpoint_seconds),
            ("trustfold_checkpoint_states", "States written by them.", metrics.checkpoint_keys),
            ("trustfold_checkpoint_bytes", "Bytes of those states.", metrics.checkpoint_bytes),
            ("trustfold_producer_restarts", "Producers replaced after a failed batch.", metrics.producer_restarts),
        ):
            yield CounterMetricFamily(name, text, value)
        states, size = dict(metrics.states), "trustfold_state_bytes"
        yield gauges("trustfold_states", "Stored states.", "stage", {name: found[0] for name, found in states.items()})
        yield gauges(size, "Bytes of stored states.", "stage", {name: found[1] for name, found in states.items()})

    def _membership(self) -> Iterator[Metric]:
        engine, metrics = self._engine, self._engine.metrics
        now = {state: float(state == engine.state) for state in STATES}
        yield gauges("trustfold_worker_state", "1 for the state the worker is in.", "state", now)
        if metrics.rules:
            text = "1 for the rules of this worker's files and environment."
            yield gauges("trustfold_rules_info", text, "fingerprint", {metrics.rules: 1.0})
        yield GaugeMetricFamily("trustfold_assigned_partitions", "Stage partitions of this worker.", metrics.assigned)
        for name, text, value in (
            ("trustfold_rebalances", "Assignments taken.", metrics.rebalances),
            ("trustfold_tenures_lost", "Assignments lost before a last checkpoint.", metrics.rebalances_lost),
            ("trustfold_recoveries", "Recoveries completed.", metrics.recoveries),
            (
                "trustfold_recovery_duration_seconds",
                "Time from an assignment to the first record, added up.",
                metrics.recovery_seconds,
            ),
            ("trustfold_recovered_records", "Changelog records read back.", metrics.recovered_records),
            (
                "trustfold_stale_records",
                "Changelog records of workers that had lost their partition.",
                metrics.stale_records,
            ),
        ):
            yield CounterMetricFamily(name, text, value)
        yield from families_of(engine.watch)


def families_of(watch: BrokerWatch) -> Iterator[Metric]:
    """Yield the metrics of a broker monitor."""
    yield GaugeMetricFamily("trustfold_broker_up", "1 while a broker answers.", float(watch.lost_since is None))
    if watch.answered_at:
        age = time.monotonic() - watch.answered_at
        yield GaugeMetricFamily("trustfold_broker_answer_age_seconds", "Time since a broker answered the watch.", age)
    without = sum(map(len, watch.leaderless.values()))
    yield GaugeMetricFamily("trustfold_leaderless_partitions", "Partitions without a leader.", without)


def _histogram(name: str, text: str, found: BoundedHistogram) -> Metric:
    reached, buckets = 0, []
    for bound, count in zip((*(f"{bound:g}" for bound in found.bounds), "+Inf"), list(found.counts), strict=True):
        reached += count
        buckets.append((bound, reached))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=found.total)
