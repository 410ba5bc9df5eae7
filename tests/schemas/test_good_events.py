"""What `events` accepts: forward compatible, forgiving where that costs nobody anything, exact about the rest."""

import json
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from msgspec import UNSET
from trustfold.schemas import events
from trustfold.schemas.codec import MAX_DEPTH, decode_event, encode
from trustfold.schemas.vocabulary import CallStatus

GOOD: dict[str, Any] = {
    "schema_version": "1.0",
    "id": "e-1",
    "type": "tool_call.finished",
    "time": "2026-01-31T12:00:00.250Z",
    "session_id": "s-1",
    "call_id": "c-1",
    "tool_name": "bash",
    "status": "error",
}


def event(**changes: Any) -> bytes:
    """The good event with other or more fields."""
    return json.dumps({**GOOD, **changes}).encode()


def test_the_least_event_decodes() -> None:
    """Only the envelope and the type's own required fields are needed; the rest is None."""
    decoded = decode_event(event())
    assert isinstance(decoded, events.ToolCallFinished)
    assert decoded.status is CallStatus.ERROR
    assert (decoded.workspace_id, decoded.error, decoded.duration_ms) == (None, None, None)
    assert decoded.result is UNSET


@pytest.mark.parametrize(
    ("time", "ms"),
    [
        ("2026-01-31T12:00:00.250Z", 1_769_860_800_250),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31t12:00:00.250999z", 1_769_860_800_250),
        ("2026-01-31T14:00:00.250+02:00", 1_769_860_800_250),
        ("2000-01-01T00:00:00Z", 946_684_800_000),
        ("2099-12-31T23:59:59.999Z", 4_102_444_799_999),
    ],
)
def test_times_are_whole_milliseconds(time: str, ms: int) -> None:
    """Any RFC 3339 time with an offset is read; what is below a millisecond is cut off."""
    assert events.epoch_ms(decode_event(event(time=time)).time) == ms


@pytest.mark.parametrize("version", ["1.0", "1.7", "1.12", "1", "1.0.3"])
def test_minor_versions_are_read(version: str) -> None:
    """Whoever publishes a newer minor version is understood."""
    assert decode_event(event(schema_version=version)).schema_version == version


def test_unknown_fields_are_ignored() -> None:
    """A newer publisher's fields are no error, on the top, in the error, or in the settings."""
    newer = event(error={"message": "boom", "new": {"a": 1}}, new=[1, {"b": None}], another="x")
    assert decode_event(newer) == decode_event(event(error={"message": "boom"}))
    settings = event(type="session.started", settings={"new": 1, "nudge_enabled": False})
    decoded = decode_event(settings)
    assert isinstance(decoded, events.SessionStarted)
    assert decoded.settings is not None
    assert decoded.settings.nudge_enabled is False


def test_null_is_absent() -> None:
    """An optional field may be null."""
    assert decode_event(event(workspace_id=None, error=None, turn_index=None)) == decode_event(event())


def test_the_last_of_two_keys_counts() -> None:
    """Of a key given twice the last one counts, as for most parsers."""
    assert decode_event(event()[:-1] + b',"tool_name":"grep"}').tool_name == "grep"  # type: ignore[union-attr]


def test_type_may_stand_anywhere() -> None:
    """Order of keys means nothing."""
    turned = json.dumps(dict(reversed(GOOD.items()))).encode()
    assert decode_event(turned) == decode_event(event())


def test_an_error_in_text_is_its_message() -> None:
    """A plain string where an error belongs is read as the error's message, for calls and for reports."""
    finished = decode_event(event(error="disk quota exceeded", result={"a": 1}))
    assert isinstance(finished, events.ToolCallFinished)
    assert finished.error == events.ErrorInfo(message="disk quota exceeded")
    assert events.json_of(finished.result) == {"a": 1}
    report = decode_event(event(type="failure.reported", error="boom"))
    assert type(report) is events.FailureReported
    assert report.error == events.ErrorInfo(message="boom")


def test_cloudevents_in_structured_mode_are_unwrapped() -> None:
    """A CloudEvent that carries the event as JSON in `data` is the event."""
    cloud = b'{"specversion":"1.0","id":"x","source":"/a","type":"dev.example","time":"2026-01-31T12:00:00Z","data":'
    assert decode_event(cloud + event() + b"}") == decode_event(event())
    assert decode_event(cloud + event(error="boom") + b"}") == decode_event(event(error="boom"))


def test_brackets_in_text_are_not_nesting() -> None:
    """Source code in a result has many brackets and no depth."""
    code = '{"a": [' * 500 + '\\"}]\\'
    decoded = decode_event(event(result=code))
    assert isinstance(decoded, events.ToolCallFinished)
    assert events.json_of(decoded.result) == code


def test_nesting_up_to_the_limit_passes() -> None:
    """The event itself is the first level."""
    deep = event()[:-1] + b',"result":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    assert isinstance(decode_event(deep), events.ToolCallFinished)
    wide = event(result=[[{}] * 200])
    assert isinstance(decode_event(wide), events.ToolCallFinished)


def test_text_may_hold_anything() -> None:
    """NUL, escapes and emoji pass in text; quotes and line breaks also in names, for models do invent such tools."""
    name = 'Task" >\n<parameter name="d\u001b[31m'
    decoded = decode_event(event(tool_name=name, result="a\x00b\x1f\u001b[0m", error={"message": "\x00"}))
    assert isinstance(decoded, events.ToolCallFinished)
    assert decoded.tool_name == name
    assert events.json_of(decoded.result) == "a\x00b\x1f\u001b[0m"
    emoji = decode_event(json.dumps({**GOOD, "model": "🦊"}).encode())
    assert emoji.model == "🦊"
    assert decode_event(json.dumps({**GOOD, "model": "🦊"}, ensure_ascii=False).encode()) == emoji


def test_raw_fields_are_built_on_demand() -> None:
    """`json_of` gives the value of a raw field, absent ones as None, and huge numbers as infinite."""
    base = event(type="tool_call.started")[:-1]

    def args(text: bytes) -> Any:
        decoded = decode_event(base + b',"args":' + text + b"}")
        assert isinstance(decoded, events.ToolCallStarted)
        return events.json_of(decoded.args)

    assert args(b'{"a":[1,2.5,null]}') == {"a": [1, 2.5, None]}
    assert args(b"null") is None
    assert args(b"[1e400,-1e400]") == [float("inf"), float("-inf")]
    assert args(b"[-" + b"9" * 5000 + b"]") == [float("-inf")]
    assert args(b"9" * 30) == float("9" * 30)
    assert events.json_of(UNSET) is None


def test_events_cannot_be_changed() -> None:
    """A decoded event is frozen."""
    with pytest.raises(AttributeError):
        decode_event(event()).id = "other"  # type: ignore[misc]


def test_an_appended_event_is_written_as_it_would_be_published() -> None:
    """What trustfold itself appends has `type` first, whole milliseconds, and no field without a value."""
    appended = events.ToolCallFinished(
        schema_version="1.0",
        id='x","time":"2026-01-31T12:00:00Z',
        time=datetime(2026, 1, 31, 12, 0, tzinfo=UTC),
        session_id="s-1",
        call_id="c-1",
        tool_name="bash",
        status=CallStatus.TIMEOUT,
    )
    written = encode(appended)
    assert decode_event(written) == appended
    assert list(orjson.loads(written)) == ["type", *(name for name in GOOD if name != "type")]
    assert orjson.loads(written)["time"] == "2026-01-31T12:00:00.000Z"
    assert orjson.loads(written)["id"] == appended.id


def test_models_and_turn_ends_may_be_stated_at_the_start() -> None:
    """An empty list of models is a statement, an absent or null one is none."""
    stated = decode_event(event(type="session.started", models=["large", "small"], reports_turn_ends=True))
    assert isinstance(stated, events.SessionStarted)
    assert (stated.models, stated.reports_turn_ends) == (("large", "small"), True)
    silent = decode_event(event(type="session.started", models=None))
    assert isinstance(silent, events.SessionStarted)
    assert (silent.models, silent.reports_turn_ends) == (None, None)
    none = decode_event(event(type="models.available", models=[]))
    assert isinstance(none, events.ModelsAvailable)
    assert none.models == ()
