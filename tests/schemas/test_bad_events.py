"""Bad input on `events`: every kind of it has its own stable reason code and the path of the fault.

See docs/design/contracts.md#bad-input.
"""

import json
from typing import Any

import orjson
import pytest
from trustfold.errors import EventRejected, RejectReason
from trustfold.projections.local_topology import LocalTopology, LogRecord
from trustfold.projections.processor import StageProcessor
from trustfold.projections.topology import STAGE_OF_TOPIC, STAGES
from trustfold.rules.rules import RuleSet
from trustfold.schemas.codec import MAX_BYTES, MAX_DEPTH, decode_event
from trustfold.security.redaction import redact_record

GOOD: dict[str, Any] = {
    "schema_version": "1.0",
    "id": "e-1",
    "type": "tool_call.finished",
    "time": "2026-01-31T12:00:00.000Z",
    "session_id": "s-1",
    "call_id": "c-1",
    "tool_name": "bash",
    "status": "error",
}


def event(**changes: Any) -> bytes:
    """The good event with other or more fields."""
    return json.dumps({**GOOD, **changes}).encode()


def without(*names: str) -> bytes:
    """The good event with fields left out."""
    return json.dumps({name: value for name, value in GOOD.items() if name not in names}).encode()


def raw(text: str) -> bytes:
    """The good event with a member in JSON's own words."""
    return event()[:-1] + b"," + text.encode() + b"}"


def nested(depth: int) -> str:
    """Arrays inside of arrays."""
    return "[" * depth + "]" * depth


def cloud(data: bytes) -> bytes:
    """A CloudEvent in structured mode around some data."""
    return b'{"specversion":"1.0","id":"x","source":"/a","type":"b","data":' + data + b"}"


R = RejectReason
BAD: dict[str, tuple[bytes | None, RejectReason, str]] = {
    # no value, too much of it, or no text
    "no value": (None, R.NULL_VALUE, "$"),
    "over the size limit": (event(result="x" * MAX_BYTES), R.TOO_LARGE, "$"),
    "nested too deep": (raw(f'"args":{nested(MAX_DEPTH)}'), R.TOO_DEEP, "$"),
    "nested too deep in an unknown field": (raw(f'"new":{nested(500)}'), R.TOO_DEEP, "$"),
    "nested beyond any parser": (b"[" * 100_000, R.TOO_DEEP, "$"),
    "nested in objects": (raw('"args":' + '{"a":' * 70 + "1" + "}" * 70), R.TOO_DEEP, "$"),
    "not UTF-8 in a known field": (event(tool_name="?").replace(b"?", b"\xff"), R.INVALID_UTF8, "$"),
    "not UTF-8 in args": (raw('"args":"?"').replace(b"?", b"\xc3"), R.INVALID_UTF8, "$"),
    "not UTF-8 in an unknown field": (raw('"new":"?"').replace(b"?", b"\xed\xa0\x80"), R.INVALID_UTF8, "$"),
    "Latin-1": (event(tool_name="caf?").replace(b"?", b"\xe9"), R.INVALID_UTF8, "$"),
    "a lone surrogate in a known field": (event(model="\ud800"), R.INVALID_UTF8, "$.model"),
    "a lone surrogate in args": (event(args={"a": ["\udfff"]}), R.INVALID_UTF8, "$.args.a[0]"),
    "a lone surrogate in a name": (event(args={"\ud800": 1}), R.INVALID_UTF8, "$.args.\\ud800"),
    # no JSON
    "a string of brackets without end": (b'{"a":"' + b'[\\"' * 300_000, R.NOT_JSON, "$"),
    "empty": (b"", R.NOT_JSON, "$"),
    "blank": (b" \n", R.NOT_JSON, "$"),
    "text": (b"hello", R.NOT_JSON, "$"),
    "cut off": (event()[:-1], R.NOT_JSON, "$"),
    "two objects": (event() + event(), R.NOT_JSON, "$"),
    "single quotes": (b"{'type': 'turn.started'}", R.NOT_JSON, "$"),
    "a trailing comma": (event()[:-1] + b",}", R.NOT_JSON, "$"),
    "a byte order mark": (b"\xef\xbb\xbf" + event(), R.NOT_JSON, "$"),
    "a control character in a string": (raw('"model":"a\nb"'), R.NOT_JSON, "$"),
    "UTF-16": (event().decode().encode("utf-16-le"), R.NOT_JSON, "$"),
    "a Schema Registry prefix": (b"\x00\x00\x00\x00\x07" + event(), R.SCHEMA_REGISTRY_FRAMING, "$"),
    # no object
    "an array": (b"[" + event() + b"]", R.NOT_AN_OBJECT, "$"),
    "a string": (b'"tool_call.finished"', R.NOT_AN_OBJECT, "$"),
    "a number": (b"7", R.NOT_AN_OBJECT, "$"),
    "null": (b"null", R.NOT_AN_OBJECT, "$"),
    # version and type
    "no version": (without("schema_version"), R.MISSING_FIELD, "$.schema_version"),
    "the next major version": (event(schema_version="2.0"), R.UNSUPPORTED_VERSION, "$.schema_version"),
    "an older major version": (event(schema_version="0.9"), R.UNSUPPORTED_VERSION, "$.schema_version"),
    "no version number": (event(schema_version="1.x"), R.UNSUPPORTED_VERSION, "$.schema_version"),
    "an empty version": (event(schema_version=""), R.UNSUPPORTED_VERSION, "$.schema_version"),
    "a version that is a number": (event(schema_version=1.0), R.WRONG_TYPE, "$.schema_version"),
    "another version and another shape": (
        json.dumps({"schema_version": "2.0", "type": "tool_call.finished"}).encode(),
        R.UNSUPPORTED_VERSION,
        "$.schema_version",
    ),
    "no type": (without("type"), R.MISSING_FIELD, "$.type"),
    "an unknown type": (event(type="tool_call.paused"), R.UNKNOWN_TYPE, "$.type"),
    "a command": (event(type="trust.reset", key="bash"), R.UNKNOWN_TYPE, "$.type"),
    "a type that is a number": (event(type=7), R.WRONG_TYPE, "$.type"),
    "two different types": (raw('"type":"turn.started"'), R.UNKNOWN_TYPE, "$.type"),
    # fields
    "no id": (without("id"), R.MISSING_FIELD, "$.id"),
    "no time": (without("time"), R.MISSING_FIELD, "$.time"),
    "no session": (without("session_id"), R.MISSING_FIELD, "$.session_id"),
    "no call id": (without("call_id"), R.MISSING_FIELD, "$.call_id"),
    "no status": (without("status"), R.MISSING_FIELD, "$.status"),
    "settings without settings": (event(type="session.settings_changed"), R.MISSING_FIELD, "$.settings"),
    "a null session": (event(session_id=None), R.WRONG_TYPE, "$.session_id"),
    "an id that is a number": (event(id=7), R.WRONG_TYPE, "$.id"),
    "a turn index that is text": (event(turn_index="3"), R.WRONG_TYPE, "$.turn_index"),
    "a turn index that is a fraction": (event(turn_index=1.5), R.WRONG_TYPE, "$.turn_index"),
    "a flag that is a number": (event(from_cache=1), R.WRONG_TYPE, "$.from_cache"),
    "an error that is a list": (event(error=["x"]), R.WRONG_TYPE, "$.error"),
    "an HTTP status that is text": (event(error={"http_status": "503"}), R.WRONG_TYPE, "$.error.http_status"),
    "an error in text beside another fault": (event(error="boom", attempts="2"), R.WRONG_TYPE, "$.attempts"),
    "a mention that is a number": (event(type="model.text", mentions=["a", 1]), R.WRONG_TYPE, "$.mentions[1]"),
    "a request for permission without a call": (
        event(type="permission.requested", call_id=None),
        R.WRONG_TYPE,
        "$.call_id",
    ),
    "models.available without models": (event(type="models.available"), R.MISSING_FIELD, "$.models"),
    "models that are null": (event(type="models.available", models=None), R.WRONG_TYPE, "$.models"),
    "a model that is a number": (event(type="session.started", models=["a", 1]), R.WRONG_TYPE, "$.models[1]"),
    "a model without a name": (event(type="models.available", models=[""]), R.BAD_LENGTH, "$.models[0]"),
    "more models than anybody has": (event(type="models.available", models=["m"] * 257), R.BAD_LENGTH, "$.models"),
    "reports_turn_ends as text": (
        event(type="session.started", reports_turn_ends="yes"),
        R.WRONG_TYPE,
        "$.reports_turn_ends",
    ),
    "an unknown status": (event(status="exploded"), R.BAD_VALUE, "$.status"),
    "an unknown status in our own words": (event(status="of length >= 9 - at `$.id`"), R.BAD_VALUE, "$.status"),
    "an unknown status without end": (event(status=" - at `$" * 100_000), R.BAD_VALUE, "$.status"),
    "an unknown type without end": (event(type="x" * 1_000_000), R.UNKNOWN_TYPE, "$.type"),
    "an unknown status with a line break": (event(status="a\n\x00b"), R.BAD_VALUE, "$.status"),
    "an unknown severity": (event(error={"severity": "bad"}), R.BAD_VALUE, "$.error.severity"),
    "an unknown nudge level": (
        event(type="session.started", settings={"nudge_level": "loud"}),
        R.BAD_VALUE,
        "$.settings.nudge_level",
    ),
    # lengths
    "an empty id": (event(id=""), R.BAD_LENGTH, "$.id"),
    "an empty session": (event(session_id=""), R.BAD_LENGTH, "$.session_id"),
    "an empty tool name": (event(tool_name=""), R.BAD_LENGTH, "$.tool_name"),
    "a long id": (event(id="x" * 257), R.BAD_LENGTH, "$.id"),
    "a long tool name": (event(tool_name="ü" * 257), R.BAD_LENGTH, "$.tool_name"),
    "a long workspace": (event(workspace_id="x" * 257), R.BAD_LENGTH, "$.workspace_id"),
    "a name with the separator of keys": (event(workspace_id="a\x1fb"), R.BAD_VALUE, "$.workspace_id"),
    "a name with NUL": (event(tool_name="a\x00b"), R.BAD_VALUE, "$.tool_name"),
    # numbers
    "a negative turn": (event(turn_index=-1), R.BAD_NUMBER, "$.turn_index"),
    "a negative duration": (event(duration_ms=-0.5), R.BAD_NUMBER, "$.duration_ms"),
    "a negative cost": (event(cost_usd=-1), R.BAD_NUMBER, "$.cost_usd"),
    "an endless duration": (event(duration_ms=1e300), R.BAD_NUMBER, "$.duration_ms"),
    "a huge count": (event(attempts=2**70), R.BAD_NUMBER, "$.attempts"),
    "a number beyond double precision": (raw('"cost_usd":1e400'), R.BAD_NUMBER, "$.cost_usd"),
    "NaN": (event(duration_ms=float("nan")), R.BAD_NUMBER, "$.duration_ms"),
    "NaN in args": (event(args={"a": [1, float("nan")]}), R.BAD_NUMBER, "$.args.a[1]"),
    "Infinity": (event(cost_usd=float("inf")), R.BAD_NUMBER, "$.cost_usd"),
    "a negative HTTP status": (event(error={"http_status": -1}), R.BAD_NUMBER, "$.error.http_status"),
    "a confidence above 1": (
        event(type="synthesis.completed", strategy="weighted", confidence=1.01),
        R.BAD_NUMBER,
        "$.confidence",
    ),
    # times
    "a time in seconds": (event(time=1_769_860_800), R.WRONG_TYPE, "$.time"),
    "a time that is none": (event(time="yesterday"), R.BAD_VALUE, "$.time"),
    "a time without offset": (event(time="2026-01-31T12:00:00"), R.BAD_VALUE, "$.time"),
    "a date": (event(time="2026-01-31"), R.BAD_VALUE, "$.time"),
    "before 2000": (event(time="1999-12-31T23:59:59.999Z"), R.TIME_OUT_OF_RANGE, "$.time"),
    "the epoch": (event(time="1970-01-01T00:00:00Z"), R.TIME_OUT_OF_RANGE, "$.time"),
    "from 2100 on": (event(time="2100-01-01T00:00:00Z"), R.TIME_OUT_OF_RANGE, "$.time"),
    "before the first year": (event(time="0001-01-01T00:00:00+10:00"), R.TIME_OUT_OF_RANGE, "$.time"),
    "after the last year": (event(time="9999-12-31T23:59:59-10:00"), R.TIME_OUT_OF_RANGE, "$.time"),
    # CloudEvents in structured mode
    "a CloudEvent with a fault inside": (cloud(event(turn_index=-1)), R.BAD_NUMBER, "$.data.turn_index"),
    "a CloudEvent without data": (b'{"specversion":"1.0","type":"b"}', R.MISSING_FIELD, "$.data"),
    "a CloudEvent around text": (cloud(b'"hello"'), R.NOT_AN_OBJECT, "$.data"),
    "a batch of CloudEvents": (b"[" + cloud(event()) + b"]", R.NOT_AN_OBJECT, "$"),
}


@pytest.mark.parametrize(("value", "reason", "path"), BAD.values(), ids=BAD.keys())
def test_bad_input_has_its_reason_and_path(value: bytes | None, reason: RejectReason, path: str) -> None:
    """Each kind of bad input is refused with its own code, at the field that is at fault."""
    with pytest.raises(EventRejected) as caught:
        decode_event(value)
    assert (caught.value.reason, caught.value.path) == (reason, path)


@pytest.mark.parametrize("value", [value for value, _, _ in BAD.values()], ids=BAD.keys())
def test_every_message_is_one_short_printable_sentence(value: bytes | None) -> None:
    """Messages and paths can be stored and shown: they are short, and no publisher can break them."""
    with pytest.raises(EventRejected) as caught:
        decode_event(value)
    for text in (caught.value.message, caught.value.path, str(caught.value)):
        assert text.isprintable()
        assert len(text.encode()) < 1000


def test_the_table_knows_every_reason() -> None:
    """No reason code of the contract goes untested; two are no fault of the record: the folds' and the server's own."""
    others = {RejectReason.INTERNAL_ERROR, RejectReason.NOT_YOURS}
    assert {reason for _, reason, _ in BAD.values()} == set(RejectReason) - others


def test_reason_codes_are_stable() -> None:
    """The codes are metric labels and search terms: they are added to, never changed."""
    assert [str(reason) for reason in RejectReason] == [
        "not_json",
        "not_an_object",
        "too_large",
        "too_deep",
        "invalid_utf8",
        "missing_field",
        "wrong_type",
        "bad_value",
        "unknown_type",
        "unsupported_version",
        "bad_length",
        "bad_number",
        "time_out_of_range",
        "null_value",
        "schema_registry_framing",
        "not_yours",
        "internal_error",
    ]


def test_long_and_odd_field_names_stay_out_of_the_message() -> None:
    """A publisher's own field names are cut, so that a dead letter never outgrows its record."""
    with pytest.raises(EventRejected) as caught:
        decode_event(event(args={"x" * 5000: float("nan")}))
    assert len(caught.value.path) < 300


def test_an_unknown_type_is_told_its_neighbour() -> None:
    """A misspelt type is told which one was meant."""
    with pytest.raises(EventRejected, match=r"did you mean 'tool_call\.finished'"):
        decode_event(event(type="tool_call.finish"))


def test_an_unknown_word_is_told_the_known_ones() -> None:
    """A value outside of an enumeration is told what the enumeration holds, also deep inside."""
    with pytest.raises(EventRejected, match="known: transient, not_found, invalid_input"):
        decode_event(event(error={"severity": "bad"}))
    with pytest.raises(EventRejected, match="known: off, gentle, direct, full"):
        decode_event(event(type="session.started", settings={"nudge_level": "loud"}))


def test_the_size_limit_can_be_set() -> None:
    """The size limit is the caller's, and a record of exactly that size passes."""
    value = event()
    assert decode_event(value, max_bytes=len(value)).id == "e-1"
    with pytest.raises(EventRejected) as caught:
        decode_event(value, max_bytes=len(value) - 1)
    assert caught.value.reason is RejectReason.TOO_LARGE


@pytest.mark.parametrize("depth", [900, 1_100, 100_000])
def test_nesting_of_any_depth_is_a_dead_letter(depth: int) -> None:
    """Deeper than a parser can follow, it is refused for the same reason, and alone."""
    value = event(args={}).replace(b'"args": {}', b'"args":' + b'{"a":' * depth + b"1" + b"}" * depth)
    assert redact_record(value) == value
    (letter,) = LocalTopology(RuleSet()).feed("events", (value,))
    assert orjson.loads(letter.value or b"")["reason"] == "too_deep"


@pytest.mark.parametrize("topic", sorted(STAGE_OF_TOPIC))
@pytest.mark.parametrize(
    "value",
    [b'{"a":' * 3_000, b'{"type":' * 3_000, b"[" * 100_000, b'{"a":' * 3_000 + b"1" + b"}" * 3_000, b"\xff", b"1"],
)
def test_no_record_of_any_topic_stops_a_fold(topic: str, value: bytes) -> None:
    """Topics that only workers should write get foreign records, too: each is a dead letter, by its own fault."""
    (letter,) = LocalTopology(RuleSet()).feed(topic, (value,))
    assert letter.topic == "dead-letters"
    assert orjson.loads(letter.value or b"")["reason"] != "internal_error"


def test_late_events_are_counted_and_repeated_ones_are_not() -> None:
    """More than a minute after a younger one of their session; they are folded at its time, whatever is counted."""
    processor = StageProcessor(STAGES[0], 0, RuleSet())
    at = [0, 600, 590, 500, 600, 0]
    records = [
        LogRecord(None, event(id=f"e-{time}", time=f"2026-01-31T12:{time // 60:02}:{time % 60:02}.000Z"), offset)
        for offset, time in enumerate(at)
    ]
    processor.process("events", records)
    assert processor.counted() == {"late": 1}
