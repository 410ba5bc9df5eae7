"""Prometheus metrics of a recording (extra `metrics`).

Labels are bounded: catalogue topics, partitions, states, reason codes. Names equal those of workers where both count
the same, so one alert serves both.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..streams.kafka.exposition import families_of
from ..streams.metric_families import by_partition, counters, gauges
from .status import STATES, RecordingStatus


class RecordingCollector(Collector):
    """Prometheus collector that reads a recording's counters."""

    def __init__(self, status: RecordingStatus) -> None:
        """Collect from this recording."""
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        yield from self._files()
        yield from self._progress()
        status = self._status
        if status.watch is not None:
            yield GaugeMetricFamily("trustfold_assigned_partitions", "Partitions of this recorder.", status.assigned)
            yield CounterMetricFamily("trustfold_rebalances", "Assignments taken.", status.rebalances)
            yield from families_of(status.watch)

    def _files(self) -> Iterator[Metric]:
        counts = self._status.recorder.counts
        yield counters("trustfold_recorded_records", "Records written to files.", "topic", counts.records)
        yield counters("trustfold_recorded_files", "Files written.", "topic", counts.files)
        yield counters("trustfold_recorded_bytes", "Bytes of these files.", "topic", counts.file_bytes)
        yield counters(
            "trustfold_unreadable_records", "Records kept without their content.", "reason", counts.unreadable
        )
        for name, text, value in (
            ("flushes", "Flushes that wrote all waiting records.", counts.flushes),
            ("flush_failures", "Flushes that failed; their records still wait.", counts.flush_failures),
            ("flush_duration_seconds", "Time spent in flushes.", counts.flush_seconds),
        ):
            yield CounterMetricFamily(f"trustfold_{name}", text, value)

    def _progress(self) -> Iterator[Metric]:
        status = self._status
        recorder = status.recorder
        yield by_partition(
            "trustfold_recorder_lag_records", "Records between the last one in a file and the log end.", status.lag
        )
        states = {state: float(state == status.state) for state in STATES}
        yield gauges("trustfold_recorder_state", "1 for the state the recorder is in.", "state", states)
        for name, text, value in (
            ("waiting_records", "Records taken that are in no file yet.", recorder.rows),
            ("waiting_bytes", "Their size.", recorder.bytes),
            ("flush_age_seconds", "Time since everything taken was in a file.", recorder.waiting_s),
            ("disk_full", "1 while there is no space for the next file.", recorder.counts.disk_full),
            ("disk_free_bytes", "Free space on the file system.", shutil.disk_usage(recorder.root).free),
        ):
            yield GaugeMetricFamily(f"trustfold_recorder_{name}", text, float(value))
