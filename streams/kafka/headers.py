"""Kafka headers of output records: CloudEvents in binary mode, and the trace context.

See docs/design/contracts.md#envelope.
"""

from __future__ import annotations

from ...projections.emitter import Output
from ...schemas.envelope import output_headers

ORDER_TIME = "order-time"
"""Header of a record between trustfold's own stages: order time of its cause in milliseconds (see `order`)."""


def trace_headers(output: Output) -> list[tuple[str, bytes]]:
    """Return only the trace context; for records between trustfold's own stages."""
    return [("traceparent", output.traceparent.encode())] if output.traceparent else []


def cloudevents(output: Output) -> list[tuple[str, bytes]]:
    """Return CloudEvents headers and the trace context; a tombstone is not an event and has only the latter."""
    if output.value is None:
        return trace_headers(output)
    return output_headers(output.id, output.type, output.time_ms, traceparent=output.traceparent)
