"""OpenTelemetry spans of the folds, linked to the publishers' traces; off by default.

A span covers one batch of a partition and links to each sampled record in it, as the messaging conventions require.
Traces are sampled by id, so all stages and workers choose the same ones, and only those that their publisher sampled.
Spans contain positions and counts; no key, name or text of a record.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from ...errors import ConfigError, add_extra
from ...schemas.envelope import traceparent_of
from .backpressure import PartitionBatch

log = logging.getLogger(__name__)

MAX_LINKS = 128  # Largest number of links of a span; the limit of OpenTelemetry's SDK

_SAMPLED = 1


class WorkerSpans:
    """Creates the spans of one worker."""

    def __init__(self, ratio: float, group: str) -> None:
        """Sample a share `ratio` of the traces, above 0 and up to 1."""
        try:
            from opentelemetry import trace  # noqa: PLC0415 - an extra
            from opentelemetry.context import Context  # noqa: PLC0415
        except ImportError:
            raise ConfigError(f"TRUSTFOLD_TRACE_RATIO is set without OpenTelemetry; {add_extra('otel')}") from None
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            log.warning(
                "TRUSTFOLD_TRACE_RATIO is set but nothing exports spans: start the worker by `opentelemetry-instrument`"
            )
        self._trace: Any = trace
        self._tracer = trace.get_tracer("trustfold.worker")
        self._nowhere = Context()
        self._bound = round(ratio * (1 << 64))
        self._group = group

    def folded(self, stage: str, batch: PartitionBatch, outputs: int, seconds: float) -> None:
        """Record the span of a batch that was folded in `seconds` and caused `outputs` outputs."""
        links: list[Any] = []
        for record in batch.records:
            if record.headers and len(links) < MAX_LINKS:
                context = self._context(traceparent_of(record.headers))
                if context is not None:
                    links.append(self._trace.Link(context, {"messaging.kafka.offset": record.offset}))
        if not links:
            return
        ended = time.time_ns()
        span = self._tracer.start_span(
            f"process {batch.tp.topic}",
            context=self._nowhere,
            kind=self._trace.SpanKind.CONSUMER,
            links=links,
            start_time=ended - int(seconds * 1e9),
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.destination.name": batch.tp.topic,
                "messaging.destination.partition.id": str(batch.tp.partition),
                "messaging.consumer.group.name": self._group,
                "messaging.batch.message_count": len(batch.records),
                "trustfold.stage": stage,
                "trustfold.outputs": outputs,
            },
        )
        span.end(ended)

    def _context(self, traceparent: str | None) -> Any:
        """Return the publisher's span context; None without one, or if the trace is not sampled."""
        if traceparent is None:
            return None
        _, trace_id, span_id, flags = traceparent.split("-")[:4]
        number = int(trace_id, 16)
        if not int(flags, 16) & _SAMPLED or (number & ((1 << 64) - 1)) >= self._bound:
            return None
        flags_ = self._trace.TraceFlags(int(flags, 16))
        return self._trace.SpanContext(number, int(span_id, 16), is_remote=True, trace_flags=flags_)
