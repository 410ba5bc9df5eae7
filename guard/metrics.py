"""Counters of a guard: eight families named `trustfold_…`, with a bounded number of label values.

See docs/design/guard.md#logs-metrics-and-traces.

Implemented without a metrics library, as a counter must cost well under a microsecond and the base install has none.
`collect` exports to prometheus-client (extra `metrics`), `text` writes the Prometheus text format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any, NamedTuple

MAX_TOOLS = 200  # Number of tools with a label of their own; further ones count as `other`, as models invent names

OTHER = "other"
BUCKETS_MS = (5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0, 30_000.0)


class MetricFamily(NamedTuple):
    """Name, kind (`counter`, `gauge`, `histogram`), label names and meaning."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


CALLS = MetricFamily(
    "trustfold_tool_calls_total", "counter", ("tool", "status", "scope"), "Guarded calls by how they ended."
)
DURATION = MetricFamily(
    "trustfold_tool_call_duration_ms", "histogram", ("tool", "status"), "From the request to its result."
)
RETRIES = MetricFamily("trustfold_tool_retry_attempts_total", "counter", ("tool", "reason"), "Attempts tried again.")
HITS = MetricFamily(
    "trustfold_tool_idempotency_hits_total", "counter", ("tool", "state"), "Calls that met a twin, by its state."
)
CACHE_SIZE = MetricFamily(
    "trustfold_tool_dedupe_cache_size", "gauge", ("tool", "scope"), "Records in the dedupe store."
)
CACHE_TTL = MetricFamily("trustfold_tool_dedupe_ttl_seconds", "gauge", ("tool", "state"), "How long records are kept.")
CIRCUITS = MetricFamily("trustfold_tool_circuit_breaker_state", "gauge", ("tool", "state"), "1 for the present state.")
TRANSITIONS = MetricFamily(
    "trustfold_tool_circuit_breaker_transitions_total",
    "counter",
    ("tool", "from_state", "to_state"),
    "Moves of circuits, as this guard saw them.",
)
EVENTS = MetricFamily("trustfold_guard_events_total", "counter", ("result",), "Events published, dropped and failed.")
SHADOW = MetricFamily(
    "trustfold_guard_shadow_total", "counter", ("tool", "reason"), "Calls that would have been refused."
)
INFLIGHT = MetricFamily(
    "trustfold_tool_inflight_records",
    "gauge",
    ("tool", "age"),
    "Calls that hold a key now: fresh, or stale if they have run for longer than a lease.",
)
INFO = MetricFamily(
    "trustfold_tool_info", "gauge", ("tool", "effect"), "1 for what a registered tool is declared to do: read or write."
)
UNTRACKED = MetricFamily(
    "trustfold_untracked_failures_total",
    "counter",
    (),
    "Failures without a fine key: their tool had its most (in memory).",
)

FAMILIES = (
    CALLS, DURATION, RETRIES, HITS, CACHE_SIZE, CACHE_TTL, CIRCUITS, TRANSITIONS, INFLIGHT, INFO, EVENTS, SHADOW,
    UNTRACKED,
)  # fmt: skip

_REASONS = frozenset("timeout 408 425 429 500 502 503 504".split())


class GuardMetrics:
    """Counters of one guard; thread-safe."""

    def __init__(self) -> None:
        """Start with all counters at zero."""
        self._values: dict[tuple[str, tuple[str, ...]], float] = {}
        self._histograms: dict[tuple[str, ...], list[float]] = {}
        self._tools: set[str] = set()
        self._sources: dict[str, Callable[[], Mapping[tuple[str, ...], float]]] = {}
        self._lock = Lock()

    def after_fork(self) -> None:
        """Replace the lock; a thread of the parent process may hold the old one."""
        self._lock = Lock()

    def tool(self, name: str) -> str:
        """Return the label of a tool."""
        if name in self._tools:
            return name
        if len(self._tools) < MAX_TOOLS:
            self._tools.add(name)
            return name
        return OTHER

    def has_label(self, tool: str) -> bool:
        """Whether a tool has a label of its own; the first `MAX_TOOLS` tools get one at their first call."""
        return tool in self._tools

    def reason(self, code: str) -> str:
        """Return the label of a failure: an HTTP status or `timeout`, else `other`; error types are unbounded."""
        return code if code in _REASONS else OTHER

    def add(self, family: MetricFamily, *labels: str, amount: float = 1) -> None:
        """Increase a counter."""
        key = (family.name, labels)
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def put(self, family: MetricFamily, *labels: str, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[family.name, labels] = value

    def read_gauge_from(self, family: MetricFamily, values: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Register `values` as the source of a gauge; it is called when the metrics are read."""
        self._sources[family.name] = values

    def observe(self, milliseconds: float, *labels: str) -> None:
        """Record a duration in the histogram."""
        with self._lock:
            counts = self._histograms.get(labels)
            if counts is None:
                counts = self._histograms[labels] = [0.0] * (len(BUCKETS_MS) + 2)
            for position, bound in enumerate(BUCKETS_MS):
                if milliseconds <= bound:
                    counts[position] += 1
                    break
            else:
                counts[len(BUCKETS_MS)] += 1
            counts[-1] += milliseconds

    def value(self, family: MetricFamily, *labels: str) -> float:
        """Return the value of a counter or gauge; 0 if it was never set."""
        return self._values.get((family.name, labels), 0.0)

    def samples(self) -> Iterator[tuple[MetricFamily, str, dict[str, str], float]]:
        """Yield every sample: family, name, labels and value; histograms as cumulative buckets, sum and count."""
        with self._lock:
            values, histograms = dict(self._values), {key: list(counts) for key, counts in self._histograms.items()}
        for name, source in self._sources.items():
            values |= {(name, labels): value for labels, value in source().items()}
        for family in FAMILIES:
            if family is DURATION:
                for labels, counts in histograms.items():
                    yield from _buckets(labels, counts)
                continue
            for (name, labels), value in values.items():
                if name == family.name:
                    yield family, name, dict(zip(family.labels, labels, strict=True)), value

    def text(self) -> str:
        """Return all metrics in the Prometheus text format."""
        lines: list[str] = []
        described: set[str] = set()
        for family, name, labels, value in self.samples():
            if family.name not in described:
                described.add(family.name)
                lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{shown}}} {value:g}")
        return "\n".join(lines) + "\n"

    def collect(self) -> Iterator[Any]:
        """Collector for prometheus-client: `REGISTRY.register(guard.metrics)`."""
        from prometheus_client.core import Metric  # extra `metrics`

        made: dict[str, Any] = {}
        for family, name, labels, value in self.samples():
            base = family.name.removesuffix("_total") if family.kind == "counter" else family.name
            metric = made.setdefault(base, Metric(base, family.help, family.kind))
            metric.add_sample(name, labels, value)
        yield from made.values()


def _buckets(labels: tuple[str, ...], counts: list[float]) -> Iterator[tuple[MetricFamily, str, dict[str, str], float]]:
    named = dict(zip(DURATION.labels, labels, strict=True))
    total = 0.0
    for bound, count in zip((*BUCKETS_MS, float("inf")), counts[:-1], strict=True):
        total += count
        edge = "+Inf" if bound == float("inf") else f"{bound:g}"
        yield DURATION, f"{DURATION.name}_bucket", {**named, "le": edge}, total
    yield DURATION, f"{DURATION.name}_sum", named, counts[-1]
    yield DURATION, f"{DURATION.name}_count", named, total


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
