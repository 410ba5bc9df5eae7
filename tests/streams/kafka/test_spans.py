"""Spans of the folds: which records are linked, and what is on them."""

from types import SimpleNamespace

import pytest
from faust.types import TP
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from trustfold.errors import ConfigError
from trustfold.streams.kafka.backpressure import PartitionBatch
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.spans import WorkerSpans

LOW, HIGH = "0af7651916cd43dd0448eb211c80319c", "0af7651916cd43ddf448eb211c80319c"
"""Traces of which a half that goes by the latter half of the id takes the first."""


def spans_of(monkeypatch: pytest.MonkeyPatch, ratio: float, *traceparents: str) -> tuple[ReadableSpan, ...]:
    """What one folded batch gives."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    records = [
        SimpleNamespace(
            offset=7 + number,
            key=b"session-of-ada",
            value=b'{"args": {"password": "hunter2"}}',
            headers=[("traceparent", text.encode())] if text else [],
        )
        for number, text in enumerate(traceparents)
    ]
    WorkerSpans(ratio, "group").folded("session", PartitionBatch(TP("t.events", 3), records, 7), 2, 0.5)
    return kept.get_finished_spans()


def test_sampled_records_are_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link for each trace of the share that its publisher sampled, too; the batch's time, place and numbers."""
    given = [f"00-{LOW}-b7ad6b7169203331-01", f"00-{HIGH}-b7ad6b7169203331-01", f"00-{LOW}-b7ad6b7169203332-00", ""]
    (span,) = spans_of(monkeypatch, 0.5, *given)
    assert [(f"{link.context.trace_id:032x}", link.context.span_id) for link in span.links] == [
        (LOW, 0xB7AD6B7169203331)
    ]
    assert dict(span.links[0].attributes or {}) == {"messaging.kafka.offset": 7}
    assert span.parent is None
    assert (span.end_time or 0) - (span.start_time or 0) == 500_000_000
    assert dict(span.attributes or {})["messaging.batch.message_count"] == 4
    assert "session-of-ada" not in span.to_json()
    assert "hunter2" not in span.to_json()


def test_a_batch_without_a_sampled_trace_has_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Malformed contexts count as none."""
    assert spans_of(monkeypatch, 1.0, f"00-{LOW}-b7ad6b7169203331-00", "nonsense", "") == ()


@pytest.mark.parametrize("ratio", [-0.1, 1.5, float("nan")])
def test_a_share_is_from_0_to_1(ratio: float) -> None:
    """Anything else is an error at the start."""
    with pytest.raises(ConfigError, match="trace_ratio"):
        KafkaSettings(trace_ratio=ratio)
