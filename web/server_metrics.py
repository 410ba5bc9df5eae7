"""`GET /metrics` of a server: counters of its engine in Prometheus' format (extra `metrics`).

Names and labels are those of workers on Kafka where both count the same (docs/operating.md, Health and metrics), so
that one dashboard and one set of alerts serve both. All counts are since the start of the process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

import orjson
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..errors import add_extra
from ..projections.emitter import StageOutput
from ..projections.incidents import CALM, STATES
from ..streams.embedded.engine import SubmitRequest
from ..streams.embedded.server import EmbeddedService
from ..streams.embedded.store_views import DEAD_LETTERS
from .dashboard.current_state import StateBoard
from .webhook import IncidentWebhook

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector

    from ..streams.metric_families import counters, exposition
except ImportError:  # the extra is not installed: the path says so
    Collector = object  # type: ignore[assignment,misc]


class EngineCollector(Collector):
    """Prometheus collector: counts an engine's commits, and reads other values on each scrape."""

    def __init__(self, service: EmbeddedService, board: StateBoard, webhook: IncidentWebhook | None) -> None:
        """Start counting; create it before the engine serves. `board` counts what the dashboard could not read."""
        self._webhook = webhook
        self._service = service
        self._board = board
        self._records: Counter[str] = Counter()
        self._outputs: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._appended = 0
        self._committed_at = time.time()
        service.writer.heard.append(self._hear)
        service.writer.listeners.append(self._listen)

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        writer = self._service.writer
        counted = writer.engine.counted
        yield counters("trustfold_records", "Records folded.", "topic", self._records)
        yield counters("trustfold_outputs", "Records written and acknowledged.", "topic", self._outputs)
        yield counters("trustfold_dead_letters", "Records that could not be folded.", "reason", self._reasons)
        for name, text, value in (
            ("clamped_times", "Event times cut because they ran ahead.", counted["clamped"]),
            ("untracked_failures", "Failures without a fine key of their own.", counted["untracked"]),
            ("reclassified_failures", "Failures judged by rules of their tool.", counted["reclassified"]),
            ("dropped_states", "Idle states dropped.", counted["dropped"]),
            ("appended_events", "Events appended because something fell due.", self._appended),
            ("dashboard_skipped_records", "Records that the dashboard could not read.", self._board.skipped),
        ):
            yield CounterMetricFamily(f"trustfold_{name}", text, value)
        for name, text, number in (
            ("store_up", "1 unless the last commit failed.", float(writer.fault is None)),
            ("rules_up", "1 unless the newest rules files cannot be used.", float(writer.reloader.fault is None)),
            ("store_bytes", "Size of the store's files.", float(self._size())),
            ("waiting_bytes", "Bytes of requests that wait to be folded.", float(writer.waiting_bytes)),
            ("log_ahead_seconds", "How far the log is ahead of this machine's clock.", writer.engine.clock.ahead_s),
            ("commit_age_seconds", "Time since a commit caused or took something.", time.time() - self._committed_at),
        ):
            yield GaugeMetricFamily(f"trustfold_{name}", text, number)
        incidents = GaugeMetricFamily(
            "trustfold_incidents", "Incidents: outages, and sessions with trouble.", labels=["state"]
        )
        found = Counter(one.state for one in self._board.incidents(time.time_ns() // 1_000_000))
        for state in STATES:
            if state not in CALM:
                incidents.add_metric([state], found[state])
        yield incidents
        if (webhook := self._webhook) is not None:
            yield GaugeMetricFamily(
                "trustfold_webhook_up", "1 unless the latest notice was not accepted.", float(not webhook.fault)
            )
            yield CounterMetricFamily("trustfold_webhook_notices", "Notices that were accepted.", webhook.accepted)
        for one in self._service.collectors:
            yield from one.collect()

    def _hear(self, requests: Sequence[SubmitRequest]) -> None:
        for request in requests:
            self._records[request.topic] += len(request.values)

    def _listen(self, outputs: Sequence[StageOutput]) -> None:
        self._committed_at = time.time()
        for output in outputs:
            self._outputs[output.topic] += 1
            if output.topic == "events":
                self._appended += 1
            elif output.topic == DEAD_LETTERS and output.value is not None:
                self._reasons[orjson.loads(output.value)["reason"]] += 1

    def _size(self) -> int:
        """The file and what SQLite keeps beside it."""
        path = self._service.path
        return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*") if file.is_file())


def metrics_routes(service: EmbeddedService, board: StateBoard, webhook: IncidentWebhook | None) -> Sequence[BaseRoute]:
    """The path of the metrics; without prometheus-client it answers 503 and says what to install."""
    if Collector is object:

        def missing(_request: HttpRequest) -> Response:
            return Response(f"{add_extra('metrics')}\n", 503, media_type="text/plain")

        return [Route("/metrics", missing)]
    text = exposition(EngineCollector(service, board, webhook))

    async def metrics(_request: HttpRequest) -> Response:
        return Response(text(), media_type=CONTENT_TYPE_LATEST)

    return [Route("/metrics", metrics)]
