"""Every topic but `events` as rows: decisions, states, commands, settings, dead letters, outcomes.

Columns are the fields of the contract under their own names; `from` and `to` are `from_state` and `to_state`, because
`from` is an SQL keyword.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import msgspec
import orjson

from ..errors import RejectReason
from ..projections.rule_source import RULES_TOPIC
from ..schemas.codec import MAX_BYTES, UNREADABLE
from ..schemas.outcomes import CallOutcome
from .columns import END_MS, RecordedRow, columns_of

_INTERNAL = frozenset({"outcomes", "standings"})  # Topics whose times are numbers

_RENAMED = {"from_state": "from", "to_state": "to", "trust_key": "key", "state_key": "key", "command_key": "key"}

# Columns of each topic except `events` besides those of all, in order: `NAME`, a VARCHAR, or `NAME:TYPE`
_TABLE = {
    # transitions of trust; `trust_key` is the key without its workspace
    "escalations": "trust_key scope from_state to_state trigger reason count:DOUBLE threshold:DOUBLE window_s:DOUBLE "
    "expires_at:TIMESTAMP successes:BIGINT successes_needed:BIGINT silent:BOOLEAN caused_by:VARCHAR[]",
    # transitions of circuits, and answers to probe requests
    "breakers": "breaker_key from_state to_state trigger consecutive_failures:BIGINT failure_rate:DOUBLE "
    "measured:BIGINT open_until:TIMESTAMP mode holder call_id lease_until:TIMESTAMP caused_by:VARCHAR[]",
    # patterns detected and cleared, nudges issued and judged, sessions restored
    "nudges": "pattern severity repetitions:BIGINT tool_sequence:VARCHAR[] fingerprint duration_ms:BIGINT model "
    "expected_action nudge_type message pattern_id lane nudge_id effective:BOOLEAN active_patterns:BIGINT "
    "pending_nudges:BIGINT settings_restored:BOOLEAN caused_by:VARCHAR[]",
    # model switches, low confidence, limits nearly or fully used
    "suggestions": "current_model suggested_model failure_key current_success_rate:DOUBLE "
    "suggested_success_rate:DOUBLE current_attempts:BIGINT suggested_attempts:BIGINT strategy confidence:DOUBLE "
    "threshold:DOUBLE guarantee used:DOUBLE limit:DOUBLE message caused_by:VARCHAR[]",
    # published states; a tombstone (`gone`) means that a key returned to its default
    "state": "kind state_key scope state mode reason failures:DOUBLE threshold:DOUBLE consecutive:BIGINT "
    "failure_rate:DOUBLE measured:BIGINT open_until:TIMESTAMP expires_at:TIMESTAMP since:TIMESTAMP score:DOUBLE "
    "attempts:BIGINT success_rate:DOUBLE gone:BOOLEAN",
    # operators' orders
    "commands": "command_key tool issued_by reason",
    # all overrides of a scope; a tombstone (`gone`) cleared them
    "settings": "scope issued_by reason gone:BOOLEAN",
    # dead letters with their reasons; the rejected record itself is not stored, since it may contain secrets
    "dead-letters": "source_topic source_partition:BIGINT source_offset:BIGINT reason path message",
    # records of calls, and on Kafka the other messages from the session stage to the tool stage
    "outcomes": "scope cause call_id tool_name fine_key verdict severity duration_ms:DOUBLE model outcome status "
    "started:TIMESTAMP summary call_digest result_digest same_result:BIGINT result_size:BIGINT agent_id "
    "turn_index:BIGINT step:BIGINT waited_ms:BIGINT attempts:BIGINT cost_usd:DOUBLE model_tier tool_class plugin_name "
    "service denied:BOOLEAN expected:BOOLEAN appended:BOOLEAN http_status:BIGINT error_type error_code error_message "
    "signature reclassified judged_by origin:BIGINT repeated:BOOLEAN",
    # messages from the session and tool stages to the fleet stage (Kafka only, except timer records)
    "standings": "cause tool_name state calls:BIGINT failures:BIGINT model",
    # rules in force from this record on, and overrides of the environment. On Kafka `source_*` give the position they
    # apply from; in the embedded engine's log it is their own position
    RULES_TOPIC: "source_topic source_partition:BIGINT source_offset:BIGINT",
}

_OWN = {
    topic: {name: kind or "VARCHAR" for name, _, kind in (column.partition(":") for column in columns.split())}
    for topic, columns in _TABLE.items()
}

# Column names and their DuckDB types, in order, of each topic except `events`
COLUMNS = {topic: columns_of(RecordedRow, own) for topic, own in _OWN.items()}

# Own columns of each topic with the fields they are read from, and their types
_FIELDS = {
    topic: [
        (name, _RENAMED.get(name, name.removeprefix("source_")), kind) for name, kind in own.items() if name != "gone"
    ]
    for topic, own in _OWN.items()
}

_KINDS: dict[str, tuple[type, ...]] = {
    "BIGINT": (int,),
    "DOUBLE": (int, float),
    "BOOLEAN": (bool,),
    "VARCHAR": (str,),
    "VARCHAR[]": (list,),
    "TIMESTAMP": (str, int),
}
_BEYOND = 1 << 63  # First integer too large for BIGINT


def row_of(
    topic: str, partition: int, offset: int, arrived_ms: int, key: str | None, value: bytes | None
) -> RecordedRow:
    """Row of one record; never raises: an unreadable record gets its position and reason code."""
    row: dict[str, Any] = {"partition": partition, "offset": offset}
    if key is not None:
        row["key"] = key
    if arrived_ms > 0:
        row["arrived"] = arrived_ms
    if value is None:
        row.update({"gone": True} if "gone" in _OWN[topic] else {"fault": RejectReason.NULL_VALUE})
    else:
        row["size"] = len(value)
        if len(value) > MAX_BYTES:
            row["fault"] = RejectReason.TOO_LARGE
        else:
            row.update((_record_of_call(value) if topic == "outcomes" else None) or _contents(topic, value))
    return cast("RecordedRow", row)


def _record_of_call(value: bytes) -> dict[str, Any] | None:
    """Columns of the record of a call, which nothing else holds; None if it is another message."""
    try:
        if _decode_outcome(value).outcome is None:
            return None
        body: dict[str, Any] = orjson.loads(value)
    except (*UNREADABLE, ValueError):
        return None
    row = _NOT_SENT | {name: body[name] for name in body.keys() & _OF_CALLS}
    ended, row["started"] = body.get("ended_ms"), body.get("started_ms")
    row["time"] = body["time_ms"] if ended is None else ended
    if service := body.get("service") or body.get("domain"):
        row["service"] = service
    return row


_decode_outcome = msgspec.json.Decoder(CallOutcome).decode
_OF_CALLS = frozenset(COLUMNS["outcomes"]) - {"id", "scope", "time", "record"}
_NOT_SENT = {"tool_class": "unknown", "status": "success"}  # Values that the wire leaves out


def _contents(topic: str, value: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(value)
        text = value.decode()
    except ValueError:
        return {"fault": RejectReason.NOT_JSON}
    if not isinstance(body, dict):
        return {"fault": RejectReason.NOT_AN_OBJECT}
    row: dict[str, Any] = {"record": None if topic == "dead-letters" else text}
    for name in ("id", "type", "session_id", "workspace_id", "user_id"):
        row[name] = _checked(body.get(name), "VARCHAR")
    row["time"] = _known(body.get("time_ms")) if topic in _INTERNAL else _moment(body.get("time"))
    for name, source, typed in _FIELDS[topic]:
        given = body.get(source)
        if given is not None:
            row[name] = _moment(given) if typed == "TIMESTAMP" else _checked(given, typed)
    return row


def _checked(value: Any, typed: str) -> Any:
    """The value if it has the column's type, else None; commands from outside may hold any value."""
    fits = isinstance(value, _KINDS[typed]) and isinstance(value, bool) == (typed == "BOOLEAN")
    if typed == "BIGINT" and fits and not -_BEYOND <= value < _BEYOND:
        return None
    if fits and typed == "VARCHAR[]":
        return tuple(str(one) for one in value)
    return value if fits else None


def _known(value: Any) -> int | None:
    """Milliseconds in the valid range of dates, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < END_MS else None


def _moment(value: Any) -> int | None:
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return int(time.timestamp() * 1000 + 0.5) if time.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
