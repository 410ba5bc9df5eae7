"""Builds families of Prometheus metrics from plain numbers, and their text (extra `metrics`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)


def exposition(collector: Collector) -> Callable[[], bytes]:
    """Return a function that renders a collector's and the process's current metrics as text; thread-safe."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


def counters(name: str, text: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    """Return a counter for each value of a label; `name` is without `_total`."""
    return _filled(CounterMetricFamily(name, text, labels=[label]), values)


def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """Return a gauge for each value of a label."""
    return _filled(GaugeMetricFamily(name, text, labels=[label]), values)


def by_partition(name: str, text: str, values: Mapping[tuple[str, int], float]) -> GaugeMetricFamily:
    """Return a gauge for each topic and partition."""
    family = GaugeMetricFamily(name, text, labels=["topic", "partition"])
    for (topic, partition), number in dict(values).items():
        family.add_metric([topic, str(partition)], number)
    return family


def _filled(family: Family, values: Mapping[str, float]) -> Family:
    for value, number in dict(values).items():
        family.add_metric([value], number)
    return family
