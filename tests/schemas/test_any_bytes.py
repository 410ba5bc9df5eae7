"""Whatever arrives: it decodes, or it is refused with a reason; nothing else ever happens."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustfold.errors import EventRejected
from trustfold.schemas.codec import decode_command, decode_decision, decode_event, decode_settings, encode
from trustfold.schemas.events import epoch_ms, json_of
from trustfold.schemas.examples import EXAMPLES

DECODERS = (decode_event, decode_command, decode_settings, decode_decision)
TEXT = st.text(st.characters(codec=None), max_size=12)  # type: ignore[arg-type]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def survives(value: bytes) -> None:
    """Every decoder takes the bytes or refuses them; what is refused can be told, what is taken can be written."""
    for decode in DECODERS:
        try:
            record = decode(value)
        except EventRejected as rejected:
            orjson.dumps({"reason": rejected.reason, "path": rejected.path, "message": rejected.message})
        else:
            assert decode(encode(record)) == decode(encode(decode(encode(record))))


@given(st.binary(max_size=200))
def test_any_bytes(value: bytes) -> None:
    """Noise never raises anything but EventRejected."""
    survives(value)


@given(JSON)
def test_any_json(value: Any) -> None:
    """JSON that is no event, with NaN and lone surrogates in it, never raises anything but EventRejected."""
    survives(json.dumps(value).encode())


@given(st.data())
def test_any_change_of_a_field(data: st.DataObject) -> None:
    """An example of any type with one field replaced by any JSON never raises anything but EventRejected."""
    example = dict(EXAMPLES[data.draw(st.sampled_from(sorted(EXAMPLES)))])
    field = data.draw(st.sampled_from([*example, "new", "error", "args", "data", "specversion"]))
    example[field] = data.draw(JSON)
    survives(json.dumps(example).encode())


@given(st.dictionaries(st.sampled_from(["type", "error", "schema_version", "id", "session_id"]), JSON))
def test_any_type_beside_any_error(fields: dict[str, Any]) -> None:
    """A type that is no text, beside an error that is one, is refused like any other."""
    survives(json.dumps({"error": "it broke", "type": {}} | fields).encode())


@pytest.mark.parametrize("kind", [{}, [], ["tool_call.finished"], 1, None])
def test_a_type_that_is_no_text_beside_a_loose_error(kind: Any) -> None:
    """The second look at an error that is a string does not stumble over it."""
    survives(json.dumps({"error": "it broke", "type": kind}).encode())


@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    """An example with bytes cut out, put in or swapped never raises anything but EventRejected."""
    value = json.dumps(EXAMPLES[data.draw(st.sampled_from(sorted(EXAMPLES)))], ensure_ascii=False).encode()
    first = data.draw(st.integers(0, len(value)))
    last = data.draw(st.integers(first, min(len(value), first + 8)))
    survives(value[:first] + data.draw(st.binary(max_size=4)) + value[last:])


@given(st.text(st.sampled_from('{}[]":,\\\x00 1eE+-.u0fdD8tn'), max_size=60))
def test_any_raw_value_that_decodes_can_be_built(text: str) -> None:
    """Raw JSON is checked with the event: whatever `args` got through can be built later."""
    value = (
        b'{"schema_version":"1.0","id":"e","type":"tool_call.started","time":"2026-01-31T12:00:00Z","session_id":"s",'
    )
    try:
        event = decode_event(value + b'"call_id":"c","tool_name":"t","args":' + text.encode() + b"}")
    except EventRejected:
        return
    orjson.dumps(json_of(event.args))  # type: ignore[union-attr]


@pytest.mark.parametrize("text", [b"1e999", b"%d" % (1 << 64), b"%d" % (-1 << 80), b"9" * 400])
def test_numbers_beyond_64_bits_beside_one_beyond_double_precision(text: bytes) -> None:
    """They are read as doubles, as they are when they stand alone, and can be written again."""
    value = (
        b'{"schema_version":"1.0","id":"e","type":"tool_call.started","time":"2026-01-31T12:00:00Z","session_id":"s",'
        b'"call_id":"c","tool_name":"t","args":{"a":1e999,"b":' + text + b"}}"
    )
    orjson.dumps(json_of(decode_event(value).args))  # type: ignore[union-attr]


@given(st.datetimes(timezones=st.timezones()))
def test_any_time_is_read_or_refused(time: Any) -> None:
    """Offsets at the ends of the calendar do not overflow."""
    value = json.dumps({**EXAMPLES["turn.started"], "time": time.isoformat()}).encode()
    try:
        event = decode_event(value)
    except EventRejected:
        return
    assert 946_684_800_000 <= epoch_ms(event.time) < 4_102_444_800_000


@pytest.mark.parametrize("decode", DECODERS)
def test_no_value_is_refused_everywhere(decode: Any) -> None:
    """A record without a value reaches no fold."""
    with pytest.raises(EventRejected):
        decode(None)
