"""Every topic but `events` as rows: decisions, states, commands, settings, dead letters, outcomes.

Columns are the fields of the contract under their own names; `from` and `to` are `from_state` and `to_state`, because
`from` is an SQL keyword.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import orjson

from ..errors import RejectReason
from ..projections.rule_source import RULES_TOPIC
from ..schemas.codec import MAX_BYTES
from .columns import END_MS, Moment, Row, columns_of

_INTERNAL = frozenset({"outcomes", "standings"})
"""Topics whose times are numbers."""

_RENAMED = {"from_state": "from", "to_state": "to", "trust_key": "key", "state_key": "key", "command_key": "key"}
_BASE = frozenset(columns_of(Row))


class EscalationRow(Row, total=False):
    """Transitions of trust; `trust_key` is the key without its workspace."""

    trust_key: str | None
    scope: str | None
    from_state: str | None
    to_state: str | None
    trigger: str | None
    reason: str | None
    count: float | None
    threshold: float | None
    window_s: float | None
    expires_at: Moment | None
    successes: int | None
    successes_needed: int | None
    silent: bool | None
    caused_by: tuple[str, ...] | None


class BreakerRow(Row, total=False):
    """Transitions of circuits, and answers to probe requests."""

    breaker_key: str | None
    from_state: str | None
    to_state: str | None
    trigger: str | None
    consecutive_failures: int | None
    failure_rate: float | None
    measured: int | None
    open_until: Moment | None
    mode: str | None
    holder: str | None
    call_id: str | None
    lease_until: Moment | None
    caused_by: tuple[str, ...] | None


class NudgeRow(Row, total=False):
    """Patterns detected and cleared, nudges issued and judged."""

    pattern: str | None
    severity: str | None
    repetitions: int | None
    tool_sequence: tuple[str, ...] | None
    fingerprint: str | None
    duration_ms: int | None
    model: str | None
    expected_action: str | None
    nudge_type: str | None
    message: str | None
    pattern_id: str | None
    lane: str | None
    nudge_id: str | None
    effective: bool | None
    caused_by: tuple[str, ...] | None


class SuggestionRow(Row, total=False):
    """Model switches, low confidence, limits nearly or fully used."""

    current_model: str | None
    suggested_model: str | None
    failure_key: str | None
    current_success_rate: float | None
    suggested_success_rate: float | None
    current_attempts: int | None
    suggested_attempts: int | None
    strategy: str | None
    confidence: float | None
    threshold: float | None
    guarantee: str | None
    used: float | None
    limit: float | None
    message: str | None
    caused_by: tuple[str, ...] | None


class StateRow(Row, total=False):
    """Published states; a tombstone (`gone`) means that a key returned to its default."""

    kind: str | None
    state_key: str | None
    scope: str | None
    state: str | None
    mode: str | None
    reason: str | None
    failures: float | None
    threshold: float | None
    consecutive: int | None
    failure_rate: float | None
    measured: int | None
    open_until: Moment | None
    expires_at: Moment | None
    since: Moment | None
    score: float | None
    attempts: int | None
    success_rate: float | None
    gone: bool | None


class CommandRow(Row, total=False):
    """Operators' orders."""

    command_key: str | None
    tool: str | None
    issued_by: str | None
    reason: str | None


class SettingsRow(Row, total=False):
    """All overrides of a scope; a tombstone (`gone`) cleared them."""

    scope: str | None
    issued_by: str | None
    reason: str | None
    gone: bool | None


class DeadLetterRow(Row, total=False):
    """Dead letters with their reasons; the rejected record itself is not stored, since it may contain secrets."""

    source_topic: str | None
    source_partition: int | None
    source_offset: int | None
    reason: str | None
    path: str | None
    message: str | None


class OutcomeRow(Row, total=False):
    """Messages from the session stage to the tool stage (Kafka only: the embedded engine keeps none)."""

    scope: str | None
    cause: str | None
    call_id: str | None
    tool_name: str | None
    fine_key: str | None
    verdict: str | None
    severity: str | None
    duration_ms: float | None
    model: str | None


class StandingRow(Row, total=False):
    """Messages from the session and tool stages to the fleet stage (Kafka only, except timer records)."""

    cause: str | None
    tool_name: str | None
    state: str | None
    calls: int | None
    failures: int | None
    model: str | None


class RulesRow(Row, total=False):
    """Rules in force from this record on, and overrides of the environment.

    On Kafka `source_*` give the position they apply from; in the embedded engine's log it is their own position.
    """

    source_topic: str | None
    source_partition: int | None
    source_offset: int | None


ROWS: dict[str, type[Row]] = {
    "escalations": EscalationRow,
    "breakers": BreakerRow,
    "nudges": NudgeRow,
    "suggestions": SuggestionRow,
    "state": StateRow,
    "commands": CommandRow,
    "settings": SettingsRow,
    "dead-letters": DeadLetterRow,
    "outcomes": OutcomeRow,
    "standings": StandingRow,
    RULES_TOPIC: RulesRow,
}
"""Row type of each topic except `events`."""

_OWN = {
    kind: [
        (name, _RENAMED.get(name, name.removeprefix("source_")), kinds[name])
        for kinds in (columns_of(kind),)
        for name in kinds
        if name not in _BASE and name != "gone"
    ]
    for kind in ROWS.values()
}
_WITH_TOMBSTONES = frozenset(topic for topic, kind in ROWS.items() if "gone" in columns_of(kind))
_KINDS: dict[str, tuple[type, ...]] = {
    "BIGINT": (int,),
    "DOUBLE": (int, float),
    "BOOLEAN": (bool,),
    "VARCHAR": (str,),
    "VARCHAR[]": (list,),
    "TIMESTAMP": (str, int),
}
_BEYOND = 1 << 63
"""First integer too large for BIGINT."""


def row_of(topic: str, partition: int, offset: int, arrived_ms: int, key: str | None, value: bytes | None) -> Row:
    """Row of one record; never raises: an unreadable record gets its position and reason code."""
    row: dict[str, Any] = {"partition": partition, "offset": offset}
    if key is not None:
        row["key"] = key
    if arrived_ms > 0:
        row["arrived"] = arrived_ms
    if value is None:
        row.update({"gone": True} if topic in _WITH_TOMBSTONES else {"fault": RejectReason.NULL_VALUE})
    else:
        row["size"] = len(value)
        row.update(_contents(topic, value) if len(value) <= MAX_BYTES else {"fault": RejectReason.TOO_LARGE})
    return cast("Row", row)


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
    for name, source, typed in _OWN[ROWS[topic]]:
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
