"""Every topic but `events` as rows: decisions, states, commands, settings, dead letters, outcomes.

Columns are the fields of the contract under their own names; `from` and `to` are `from_state` and `to_state`, because
the first is a word of SQL.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from .columns import Moment, Row, columns_of

_INTERNAL = frozenset({"outcomes", "standings"})
"""Their times are numbers."""

_RENAMED = {"from_state": "from", "to_state": "to", "trust_key": "key", "state_key": "key", "command_key": "key"}
_BASE = frozenset(Row.__struct_fields__)


class EscalationRow(Row, kw_only=True, omit_defaults=True):
    """Transitions of trust; `trust_key` is the key without its workspace."""

    trust_key: str | None = None
    scope: str | None = None
    from_state: str | None = None
    to_state: str | None = None
    trigger: str | None = None
    reason: str | None = None
    count: float | None = None
    threshold: float | None = None
    window_s: float | None = None
    expires_at: Moment | None = None
    successes: int | None = None
    successes_needed: int | None = None
    silent: bool | None = None
    caused_by: tuple[str, ...] | None = None


class BreakerRow(Row, kw_only=True, omit_defaults=True):
    """Transitions of circuits, and answers to requests for a probe."""

    breaker_key: str | None = None
    from_state: str | None = None
    to_state: str | None = None
    trigger: str | None = None
    consecutive_failures: int | None = None
    failure_rate: float | None = None
    measured: int | None = None
    open_until: Moment | None = None
    mode: str | None = None
    holder: str | None = None
    call_id: str | None = None
    lease_until: Moment | None = None
    caused_by: tuple[str, ...] | None = None


class NudgeRow(Row, kw_only=True, omit_defaults=True):
    """Patterns detected and cleared, nudges issued and judged."""

    pattern: str | None = None
    severity: str | None = None
    repetitions: int | None = None
    tool_sequence: tuple[str, ...] | None = None
    fingerprint: str | None = None
    duration_ms: int | None = None
    model: str | None = None
    expected_action: str | None = None
    nudge_type: str | None = None
    message: str | None = None
    pattern_id: str | None = None
    lane: str | None = None
    nudge_id: str | None = None
    effective: bool | None = None
    caused_by: tuple[str, ...] | None = None


class SuggestionRow(Row, kw_only=True, omit_defaults=True):
    """Model switches, low confidence, limits nearly or fully spent."""

    current_model: str | None = None
    suggested_model: str | None = None
    failure_key: str | None = None
    current_success_rate: float | None = None
    suggested_success_rate: float | None = None
    current_attempts: int | None = None
    suggested_attempts: int | None = None
    strategy: str | None = None
    confidence: float | None = None
    threshold: float | None = None
    guarantee: str | None = None
    used: float | None = None
    limit: float | None = None
    message: str | None = None
    caused_by: tuple[str, ...] | None = None


class StateRow(Row, kw_only=True, omit_defaults=True):
    """Latest states as they were published; a tombstone (`gone`) says that a key was back to its default."""

    kind: str | None = None
    state_key: str | None = None
    scope: str | None = None
    state: str | None = None
    mode: str | None = None
    reason: str | None = None
    failures: float | None = None
    threshold: float | None = None
    consecutive: int | None = None
    failure_rate: float | None = None
    measured: int | None = None
    open_until: Moment | None = None
    expires_at: Moment | None = None
    since: Moment | None = None
    score: float | None = None
    attempts: int | None = None
    success_rate: float | None = None
    gone: bool | None = None


class CommandRow(Row, kw_only=True, omit_defaults=True):
    """Operators' orders."""

    command_key: str | None = None
    tool: str | None = None
    issued_by: str | None = None
    reason: str | None = None


class SettingsRow(Row, kw_only=True, omit_defaults=True):
    """Overrides of a scope, whole; a tombstone (`gone`) cleared them."""

    scope: str | None = None
    issued_by: str | None = None
    reason: str | None = None
    gone: bool | None = None


class DeadLetterRow(Row, kw_only=True, omit_defaults=True):
    """What could not be processed and why; the refused record itself stays in the log, for it may hold anything."""

    source_topic: str | None = None
    source_partition: int | None = None
    source_offset: int | None = None
    reason: str | None = None
    path: str | None = None
    message: str | None = None


class OutcomeRow(Row, kw_only=True, omit_defaults=True):
    """What the session stage told the tool stage (Kafka only: the embedded engine keeps none)."""

    scope: str | None = None
    cause: str | None = None
    call_id: str | None = None
    tool_name: str | None = None
    fine_key: str | None = None
    verdict: str | None = None
    severity: str | None = None
    duration_ms: float | None = None
    model: str | None = None


class StandingRow(Row, kw_only=True, omit_defaults=True):
    """What the session and the tool stage told the fleet stage (Kafka only, but for what fell due)."""

    cause: str | None = None
    tool_name: str | None = None
    state: str | None = None
    calls: int | None = None
    failures: int | None = None
    model: str | None = None


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
}
"""Row of every topic but `events`."""

_OWN = {
    kind: [
        (name, _RENAMED.get(name, name.removeprefix("source_")), kinds[name])
        for kinds in (columns_of(kind),)
        for name in kinds
        if name not in _BASE and name != "gone"
    ]
    for kind in ROWS.values()
}
_KINDS: dict[str, tuple[type, ...]] = {
    "BIGINT": (int,),
    "DOUBLE": (int, float),
    "BOOLEAN": (bool,),
    "VARCHAR": (str,),
    "VARCHAR[]": (list,),
    "TIMESTAMP": (str, int),
}


def row_of(topic: str, partition: int, offset: int, arrived_ms: int, key: str | None, value: bytes | None) -> Row:
    """The row of one record; never raises: what cannot be read keeps its place and the reason."""
    kind = ROWS[topic]
    place: dict[str, Any] = {
        "partition": partition,
        "offset": offset,
        "key": key,
        "arrived": arrived_ms if arrived_ms > 0 else None,
    }
    if value is None:
        return kind(**place, **({"gone": True} if "gone" in kind.__struct_fields__ else {"fault": "null_value"}))
    try:
        body = orjson.loads(value)
        text = value.decode()
    except ValueError:
        return kind(**place, size=len(value), fault="not_json")
    if not isinstance(body, dict):
        return kind(**place, size=len(value), fault="not_an_object")
    row = kind(**place, size=len(value), record=text)
    for name in ("id", "type", "session_id", "workspace_id", "user_id"):
        setattr(row, name, _checked(body.get(name), "VARCHAR"))
    row.time = body.get("time_ms") if topic in _INTERNAL else _moment(body.get("time"))
    if topic == "dead-letters":
        row.record = None
    for name, source, typed in _OWN[kind]:
        given = body.get(source)
        if given is not None:
            setattr(row, name, _moment(given) if typed == "TIMESTAMP" else _checked(given, typed))
    return row


def _checked(value: Any, typed: str) -> Any:
    """The value, if it is of the column's type; a command from outside may hold anything."""
    fits = isinstance(value, _KINDS[typed]) and isinstance(value, bool) == (typed == "BOOLEAN")
    if fits and typed == "VARCHAR[]":
        return tuple(str(one) for one in value)
    return value if fits else None


def _moment(value: Any) -> int | None:
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return int(time.timestamp() * 1000 + 0.5) if time.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
