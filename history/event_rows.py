"""Events as rows: columns for the fields that analysts filter by, JSON for the rest, never results.

What a call was and what became of it is in its record, which the session stage writes (`decision_rows.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from operator import attrgetter
from typing import Any, NamedTuple, cast, get_args

import msgspec
from msgspec import structs

from ..errors import EventRejected, RejectReason
from ..projections.session.appended import is_appended
from ..projections.session.calls import request_of
from ..projections.session.novelty import NO_REQUEST, CallRequest
from ..schemas import events as ev
from ..schemas.codec import decode_event
from .columns import RecordedRow, columns_of
from .result_sketches import ResultSketcher
from .session_cache import RecentCache

_encode = msgspec.json.Encoder().encode

# SQL of an event as JSON, from its row; older files hold the whole
WHOLE = """CASE WHEN record LIKE '{"type":%' THEN record ELSE concat(
    '{"type":', to_json(type), ',"id":', to_json(id), ',"session_id":', to_json(session_id),
    CASE WHEN record NOT LIKE '{"time":%' THEN strftime(time, ',"time":"%Y-%m-%dT%H:%M:%S.%gZ"') END,
    ',"call_id":' || to_json(call_id), ',"message_id":' || to_json(message_id),
    ',"workspace_digest":' || to_json(workspace_digest), ',', record[2:]) END"""

_ONLY_COLUMNS = ("message_id", "workspace_digest")  # Optional fields that stand in columns alone


class EventRow(RecordedRow, total=False):
    """One record of the `events` topic.

    Attributes:
        workspace_id, user_id, model: of the event, else the last given in its session, as in the folds.
        appended: the engine wrote it itself: a call that never finished, time that passed.
        repeated: an event of this id was recorded before; folds ignore it, and so do the views.
        service: MCP server or domain, as the event names it.
        message_id: the model's message that made the call.
        about: `output_id` of a false alarm, `nudge_id` of a delivery, `breaker_key` of a request for a probe.
        text_size: characters of a model's message.
        words: words of a user's message.
        source: who spoke to the model, other than its user.
        workspace_digest: equal for equal states of the workspace after a call.
    """

    turn_index: int | None
    tenant_id: str | None
    agent_id: str | None
    model: str | None
    model_tier: str | None
    correlation_id: str | None
    appended: bool | None
    repeated: bool | None
    call_id: str | None
    tool_name: str | None
    plugin_name: str | None
    service: str | None
    scenario: str | None
    recursion_depth: int | None
    deadline_ms: float | None
    message_id: str | None
    status: str | None
    from_cache: bool | None
    granted: bool | None
    method: str | None
    domain: str | None
    about: str | None
    reason: str | None
    confidence: float | None
    stalled: bool | None
    text_size: int | None
    words: int | None
    source: str | None
    workspace_digest: str | None


# Columns of files whose recorder judged calls itself, as it had no records of them; newer files have none of them
OLDER_COLUMNS = {
    "start_id": "VARCHAR",
    "failure_key": "VARCHAR",
    "tool_class": "VARCHAR",
    "call_digest": "VARCHAR",
    "started": "TIMESTAMP",
    "verdict": "VARCHAR",
    "severity": "VARCHAR",
    "reclassified": "VARCHAR",
    "judged_by": "VARCHAR",
    "denied": "BOOLEAN",
    "expected": "BOOLEAN",
    "duration_ms": "DOUBLE",
    "attempts": "BIGINT",
    "error_type": "VARCHAR",
    "error_code": "VARCHAR",
    "http_status": "BIGINT",
    "signature": "VARCHAR",
    "result_digest": "VARCHAR",
    "same_result": "BIGINT",
    "result_size": "BIGINT",
    "cost_usd": "DOUBLE",
}


class EventReader:
    """Converts one partition's events into rows, in order."""

    def __init__(self, key: bytes) -> None:
        """Start with empty memory; lines of results are hashed with `key`."""
        self._sketcher = ResultSketcher(key)
        self._sessions: RecentCache[str, dict[str, str]] = RecentCache()  # the last workspace, user and model of each
        self._requests: RecentCache[tuple[str, str], CallRequest] = RecentCache()  # by session and call
        self._seen: RecentCache[str, bool] = RecentCache()

    def row(self, partition: int, offset: int, arrived_ms: int, key: str | None, value: bytes | None) -> EventRow:
        """Row of one record; never raises: an unreadable record gets its position and reason code."""
        row: EventRow
        try:
            row = self._row(decode_event(value))
        except EventRejected as rejected:
            row = {"fault": str(rejected.reason)}
        except Exception:  # noqa: BLE001 - a bug must not stop the recording; the folds do the same
            row = {"fault": str(RejectReason.INTERNAL_ERROR)}
        row["partition"], row["offset"], row["size"] = partition, offset, 0 if value is None else len(value)
        if arrived_ms > 0:
            row["arrived"] = arrived_ms
        if key is not None:
            row["key"] = key
        return row

    def _row(self, event: ev.Event) -> EventRow:
        kind = type(event)
        blank, usual, usual_of, seldom, seldom_of = _COPIED[kind]
        columns = blank.copy()
        columns.update(zip(usual, usual_of(event), strict=True))
        given = seldom_of(event)
        if given.count(None) < len(seldom):
            columns.update(zip(seldom, given, strict=True))
        row = cast("EventRow", columns)
        row["type"], row["time"] = _TAGS[kind], ev.epoch_ms(event.time)
        session = self._sessions.get(event.session_id) or self._sessions.keep(event.session_id, {})
        for name, given_now in zip(_OF_SESSIONS, _given(event), strict=True):
            if given_now:
                session[name] = given_now
        columns.update(session)
        if self._seen.known(event.id, value=True):
            row["repeated"] = True
        if isinstance(event, ev.ToolCallFinished):
            if is_appended(event):
                row["appended"] = True
            request = self._requests.get((event.session_id, event.call_id)) or NO_REQUEST
            event = self._sketcher.without_result(event, request)
        elif isinstance(event, ev.ToolCallStarted):
            self._requests.keep((event.session_id, event.call_id), request_of(event))
        elif isinstance(event, ev.ModelText) and event.text is not None:
            row["text_size"] = len(event.text)
        elif isinstance(event, ev.TimePassed):
            row["appended"] = True
        row["record"] = _rest(event)
        return row


def _rest(event: ev.Event) -> str:
    """An event as JSON without what its columns say: type, ids, and the time unless it is finer than milliseconds.

    Ids hardly compress: they would be a third of a history. What is sought stands before any nested object, and not
    within a text, where a quotation mark has a backslash.
    """
    own = {name: None for name in _ONLY_COLUMNS if getattr(event, name, None) is not None}
    raw = _encode(structs.replace(event, **own) if own else event)
    version = raw.index(b'"schema_version":')
    identity = raw.index(b',"id":', version)
    time = raw.index(b',"time":', identity) + 1
    session = raw.index(b',"session_id":', time) + 1
    rest = raw[session + len(b'"session_id":') + len(_encode(event.session_id)) :]
    if call_id := getattr(event, "call_id", None):
        rest = rest.replace(b',"call_id":' + _encode(call_id), b"", 1)
    in_column = event.time.tzinfo is UTC and not event.time.microsecond % 1000
    return (b"{" + (b"" if in_column else raw[time:session]) + raw[version:identity] + rest).decode()


_TAGS: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(ev.Event)}
_ABOUT = {"output_id": "about", "nudge_id": "about", "breaker_key": "about"}
_COLUMNS = columns_of(EventRow)
# Columns whose missing values are filled with the session's last value
_OF_SESSIONS = ("workspace_id", "user_id", "model")
_given = attrgetter(*_OF_SESSIONS)

_CALLS = (ev.ToolCallStarted, ev.ToolCallFinished)

# Fields present in nearly all events of the types that have them
_USUAL = frozenset({"id", "session_id", "turn_index", "call_id", "tool_name", "status"})

_FILLED = (
    "partition offset arrived key size id type time session_id workspace_id user_id model turn_index record".split()
)
_FILLED_BY_CALLS = "call_id tool_name".split()  # Columns that most rows of a type have


class _RowTemplate(NamedTuple):
    """Template for rows of one event type."""

    # dictionary with the columns that most rows fill; copying it is cheaper than growing a new one
    blank: dict[str, Any]
    # usual, usual_of: columns copied from fields of the event, and the function that reads them
    usual: tuple[str, ...]
    usual_of: Callable[[Any], tuple[Any, ...]]
    # seldom, seldom_of: the same for fields that are rarely present
    seldom: tuple[str, ...]
    seldom_of: Callable[[Any], tuple[Any, ...]]


def _copied(kind: type[ev.Event]) -> _RowTemplate:
    worked_out = {"type", "time", *_OF_SESSIONS}
    fields = [name for name in kind.__struct_fields__ if _ABOUT.get(name, name) in _COLUMNS and name not in worked_out]
    usual = [name for name in fields if name in _USUAL]
    seldom = [name for name in fields if name not in _USUAL]
    filled = [
        *_FILLED,
        *(_FILLED_BY_CALLS if kind in _CALLS else ()),
    ]
    return _RowTemplate(
        dict.fromkeys(filled),
        tuple(usual),
        attrgetter(*usual),
        tuple(_ABOUT.get(name, name) for name in seldom),
        attrgetter(*seldom),
    )


_COPIED = {kind: _copied(kind) for kind in get_args(ev.Event)}
