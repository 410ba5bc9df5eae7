"""Commands, settings and decisions: the other records that trustfold reads."""

import json
from typing import Any, get_args

import pytest
from trustfold.errors import EventRejected, RejectReason
from trustfold.schemas import commands, decisions
from trustfold.schemas.codec import decode_command, decode_decision, decode_settings, encode
from trustfold.schemas.examples import EXAMPLES
from trustfold.schemas.public_state import STATE_KINDS, public_state
from trustfold.schemas.vocabulary import NudgeLevel, QualitySeverity

RESET = EXAMPLES["trust.reset"]
SETTINGS = EXAMPLES["settings.changed"]


def wire(example: dict[str, Any], **changes: Any) -> bytes:
    """An example with other fields, as bytes."""
    return json.dumps({**example, **changes}).encode()


def test_every_command_names_a_key() -> None:
    """Whatever a command is about, its `key` says where its state lives."""
    for kind in get_args(commands.Command):
        command = decode_command(wire(EXAMPLES[kind.__struct_config__.tag]))
        assert type(command) is kind
        assert command.key


def test_a_mark_needs_only_the_tool() -> None:
    """The severity of a mark is medium unless it says otherwise, and its key is the tool's scope."""
    mark = EXAMPLES["quality.mark"]
    least = {name: mark[name] for name in ("type", "schema_version", "id", "time", "tool")}
    command = decode_command(wire(least))
    assert isinstance(command, commands.QualityMark)
    assert command.severity is QualitySeverity.MEDIUM
    assert command.key == "tool:nmt_translator"


@pytest.mark.parametrize(
    ("value", "reason", "path"),
    [
        (None, RejectReason.NULL_VALUE, "$"),
        (b"", RejectReason.NOT_JSON, "$"),
        (b"[]", RejectReason.NOT_AN_OBJECT, "$"),
        (b"[" * 90 + b"]" * 90, RejectReason.TOO_DEEP, "$"),
        (wire(RESET, reason="x" * 2_000_000), RejectReason.TOO_LARGE, "$"),
        (wire(RESET, new="?").replace(b"?", b"\xff"), RejectReason.INVALID_UTF8, "$"),
        (wire(RESET, type="trust.rest"), RejectReason.UNKNOWN_TYPE, "$.type"),
        (wire(RESET, schema_version="3.0"), RejectReason.UNSUPPORTED_VERSION, "$.schema_version"),
        (wire(RESET, time="1999-01-01T00:00:00Z"), RejectReason.TIME_OUT_OF_RANGE, "$.time"),
        (wire(RESET, key="a\x1fb"), RejectReason.BAD_VALUE, "$.key"),
        (wire(RESET, key=""), RejectReason.BAD_LENGTH, "$.key"),
        (wire(RESET, key="x" * 1025), RejectReason.BAD_LENGTH, "$.key"),
        (wire(EXAMPLES["breaker.force_open"], duration_s=-1), RejectReason.BAD_NUMBER, "$.duration_s"),
        (wire(EXAMPLES["quality.mark"], severity="huge"), RejectReason.BAD_VALUE, "$.severity"),
        (wire(EXAMPLES["quality.restore"], score=1.5), RejectReason.BAD_NUMBER, "$.score"),
    ],
)
def test_bad_commands_are_refused(value: bytes | None, reason: RejectReason, path: str) -> None:
    """Commands are refused for the same reasons as events."""
    with pytest.raises(EventRejected) as caught:
        decode_command(value)
    assert (caught.value.reason, caught.value.path) == (reason, path)


def test_settings_tell_unset_from_false() -> None:
    """Null and absent inherit; an explicit false wins."""
    record = decode_settings(wire(SETTINGS, overrides={"nudge_enabled": False, "nudge_level": None}))
    assert record.overrides.nudge_enabled is False
    assert record.overrides.nudge_level is None
    assert record.overrides.pattern_detection_enabled is None


def test_settings_carry_rules_as_they_are() -> None:
    """Rule overrides pass unread: only those who merge them know their shape."""
    record = decode_settings(wire(SETTINGS))
    assert record.scope == "workspace:shop"
    assert record.overrides.rules == {"trust": {"tool_rules": {"bash": {"count_threshold": 5}}}}


@pytest.mark.parametrize("scope", ["shop", "session:s-1", "team:a", "user:", ":a"])
def test_settings_belong_to_a_user_or_a_workspace(scope: str) -> None:
    """A scope that nobody would look up is refused; session overrides are input events."""
    with pytest.raises(EventRejected) as caught:
        decode_settings(wire(SETTINGS, scope=scope))
    assert (caught.value.reason, caught.value.path) == (RejectReason.BAD_VALUE, "$.scope")


def test_bad_settings_are_refused() -> None:
    """A setting outside of its words is told the words it knows."""
    with pytest.raises(EventRejected, match=", ".join(NudgeLevel)) as caught:
        decode_settings(wire(SETTINGS, overrides={"nudge_level": "loud"}))
    assert (caught.value.reason, caught.value.path) == (RejectReason.BAD_VALUE, "$.overrides.nudge_level")


def test_decisions_can_be_read_back() -> None:
    """A consumer in Python reads what was written, and ignores what it does not know."""
    for kind in get_args(decisions.Decision):
        example = EXAMPLES[kind.__struct_config__.tag]
        decision = decode_decision(wire(example, new={"a": 1}))
        assert isinstance(decision, kind)
        assert json.loads(encode(decision)) == example


_STATES = {"trust": {"state": "blocked"}, "breaker": {"state": "open"}, "quality": {}, "model": {}}


def public(kind: str, **fields: Any) -> dict[str, Any]:
    """The least record of the `state` topic."""
    return EXAMPLES["state.updated"] | {"kind": kind} | _STATES[kind] | fields


@pytest.mark.parametrize("kind", _STATES)
def test_a_public_state_is_read_as_its_kind(kind: str) -> None:
    """From bytes and from plain JSON alike."""
    decision = decode_decision(wire(public(kind)))
    assert type(decision) is STATE_KINDS[kind]
    assert public_state(public(kind)) == decision


def test_a_state_of_another_kind_is_refused() -> None:
    """A circuit can be open, trust cannot."""
    with pytest.raises(EventRejected) as caught:
        decode_decision(wire(public("trust", state="open")))
    assert (caught.value.reason, caught.value.path) == (RejectReason.BAD_VALUE, "$.state")


def test_a_newer_decision_is_refused_by_name() -> None:
    """A reader that is older than the worker says so for types that it does not know."""
    with pytest.raises(EventRejected) as caught:
        decode_decision(wire(EXAMPLES["nudge.issued"], type="nudge.repeated"))
    assert (caught.value.reason, caught.value.path) == (RejectReason.UNKNOWN_TYPE, "$.type")
