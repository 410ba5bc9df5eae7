"""What travels beside a record: ids that a replay repeats, CloudEvents headers, the trace context."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustfold.schemas.codec import rfc3339
from trustfold.schemas.envelope import output_headers, output_id, traceparent_of

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_an_output_id_never_changes() -> None:
    """Ids are compared across replays, engines and releases, so this one is written down."""
    assert output_id("a", "nudge.issued", 0) == "881a912b-ef58-8607-a414-676f06dcd33b"


@given(st.text(), st.sampled_from(["nudge.issued", "trust.changed"]), st.integers(0, 1000))
def test_output_ids_are_uuids_of_version_8(cause: str, output_type: str, ordinal: int) -> None:
    """Every id is a valid custom UUID, the same for the same input."""
    made = output_id(cause.encode("utf-8", "ignore").decode(), output_type, ordinal)
    parsed = uuid.UUID(made)
    assert str(parsed) == made
    assert parsed.variant == uuid.RFC_4122
    assert parsed.version == 8
    assert made == output_id(cause.encode("utf-8", "ignore").decode(), output_type, ordinal)


def test_output_ids_differ_with_each_part() -> None:
    """Cause, type and ordinal each matter, and none can be mistaken for a part of another."""
    ids = {
        output_id("a", "b", 0),
        output_id("a", "b", 1),
        output_id("a", "c", 0),
        output_id("b", "b", 0),
        output_id("ab", "", 0),
        output_id("", "ab", 0),
    }
    assert len(ids) == 6


def test_headers_are_cloudevents_in_binary_mode() -> None:
    """An output carries the attributes of CloudEvents 1.0 and continues its cause's trace."""
    assert output_headers("i-1", "nudge.issued", 1_769_860_800_250, traceparent=TRACE) == [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"i-1"),
        ("ce_type", b"nudge.issued"),
        ("ce_source", b"/trustfold"),
        ("ce_time", b"2026-01-31T12:00:00.250Z"),
        ("content-type", b"application/json"),
        ("traceparent", TRACE.encode()),
    ]
    assert "traceparent" not in dict(output_headers("i-1", "nudge.issued", 0))
    assert dict(output_headers("i-1", "x", 0, source="/eu/1"))["ce_source"] == b"/eu/1"


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([("traceparent", TRACE.encode())], TRACE),
        ([("a", b"b"), ("TraceParent", TRACE.encode())], TRACE),
        ([("traceparent", b"01" + TRACE[2:].encode() + b"-future")], "01" + TRACE[2:] + "-future"),
        ([("traceparent", TRACE.encode() + b"-more")], None),
        ([("traceparent", TRACE.upper().encode())], None),
        ([("traceparent", b"ff" + TRACE[2:].encode())], None),
        ([("traceparent", b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01")], None),
        ([("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-" + b"0" * 16 + b"-01")], None),
        ([("traceparent", b"\xff\xfe")], None),
        ([("traceparent", b"")], None),
        ([("traceparent", None)], None),
        ([], None),
        (None, None),
    ],
)
def test_the_trace_context_is_read_or_left(headers: object, found: str | None) -> None:
    """A valid trace context is continued; a malformed one starts a new trace and is never an error."""
    assert traceparent_of(headers) == found  # type: ignore[arg-type]


def test_an_event_states_its_trace_context_too() -> None:
    """That of the headers takes precedence, and a malformed one is left out."""
    other = TRACE.replace("b7ad", "a7ad")
    assert traceparent_of(None, other) == other
    assert traceparent_of([("traceparent", TRACE.encode())], other) == TRACE
    assert traceparent_of([("a", b"b")], "x" * 60_000) is None


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_769_860_800_250, "2026-01-31T12:00:00.250Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_written_with_milliseconds_and_z(ms: int, text: str) -> None:
    """Every time on the wire has the same length, so that text order is time order."""
    assert rfc3339(ms) == text


@pytest.mark.parametrize("ms", [253_402_300_800_000, -62_135_596_800_001, 10**30])
def test_times_outside_of_the_calendar_are_refused(ms: int) -> None:
    """There is no text for what is outside of the years 1 to 9999."""
    with pytest.raises(ValueError, match="year"):
        rfc3339(ms)
