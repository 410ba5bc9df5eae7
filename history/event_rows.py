"""Events as rows: columns for the fields that analysts filter by, JSON for the rest, never results.

Verdict and severity are those of the rules in force, failure key and tool class those of the default rules.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, cast, get_args

import msgspec
from msgspec.structs import replace

from ..errors import EventRejected, RejectReason
from ..projections.calls.classify import Failure, classify
from ..projections.session.appended import is_appended
from ..projections.session.calls import describe, start_of
from ..projections.session.records import OpenCall
from ..projections.session.verdicts import Verdict, judge
from ..rules.rules import Rules
from ..schemas import events as ev
from ..schemas.codec import decode_event
from ..schemas.vocabulary import Severity, ToolClass
from .columns import EpochMs, Row, columns_of
from .result_sketches import Sketcher, reported
from .session_cache import Recent, Session, Sessions
from .signatures import signature

LATE_MS = 60_000
"""Duration after which a finish may have come after the deadline; deadlines set in rules are minutes."""

SAME_ID = 16
"""Maximum number of open calls with one id that are kept for a session."""

_RULES = Rules()
_NO_ERROR = ev.ErrorInfo()
_encode = msgspec.json.Encoder().encode


class EventRow(Row, total=False):
    """One record of the `events` topic.

    Attributes:
        workspace_id, user_id, model: of the event, else the last given in its session, as in the folds.
        appended: the engine wrote it itself: a call that never finished, time that passed. False, and not NULL, on a
            finish that came so late that the engine has closed its call before, or may have.
        repeated: an event of this id was recorded before, or another finish of the call; folds ignore it, and so do the
            views.
        start_id: on a finish that came late, the start of its call: if the engine has closed that call by then, with an
            appended finish that names the same start, this one is ignored.
        service: MCP server or domain of the call.
        failure_key: trust key of the call, e.g. `bash|command=git`; on a finish, that of its start.
        tool_class: what the call does to the world.
        call_digest: equal for calls with equal tool and arguments.
        message_id: the model's message that made the call.
        started: when the call of this finish started, where that was seen.
        verdict: success, failure or neutral.
        severity: of a failure.
        reclassified: severity that the failure has by itself, where the rules or the publisher judge it otherwise.
        judged_by: who does: `publisher`, or the entry of the tool's failures in the rules.
        denied: the user refused the call.
        signature: the error with everything that varies taken out; groups failures across agents.
        result_digest: equal for equal results.
        same_result: how often this call has given this result in its session, this time included, since the last
            other call that was an action and brought something new.
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
    start_id: str | None
    call_id: str | None
    tool_name: str | None
    plugin_name: str | None
    service: str | None
    failure_key: str | None
    tool_class: str | None
    call_digest: str | None
    scenario: str | None
    recursion_depth: int | None
    deadline_ms: float | None
    message_id: str | None
    started: EpochMs | None
    status: str | None
    verdict: str | None
    severity: str | None
    reclassified: str | None
    judged_by: str | None
    denied: bool | None
    expected: bool | None
    duration_ms: float | None
    attempts: int | None
    error_type: str | None
    error_code: str | None
    http_status: int | None
    signature: str | None
    result_digest: str | None
    same_result: int | None
    result_size: int | None
    from_cache: bool | None
    cost_usd: float | None
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


class EventReader:
    """Converts one partition's events into rows, in order.

    Attributes:
        rules: rules in force, by which calls are judged.
    """

    def __init__(self, key: bytes) -> None:
        """Start with empty memory; lines of results are hashed with `key`."""
        self.rules = _RULES
        self._sketcher = Sketcher(key)
        self._sessions = Sessions()
        self._late: Recent[str, OpenCall] = Recent()
        self._closed: Recent[tuple[str, str], OpenCall] = Recent()
        self._seen: Recent[str, bool] = Recent()

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
        session = self._sessions.of(event.session_id)
        if workspace := event.workspace_id or session.workspace:
            row["workspace_id"] = session.workspace = workspace
        if user := event.user_id or session.user:
            row["user_id"] = session.user = user
        if model := event.model or session.model:
            row["model"] = session.model = model
        if self._seen.known(event.id, value=True):
            row["repeated"] = True
        if isinstance(event, ev.ToolCallFinished):
            event = self._finished(row, event, session)
        elif isinstance(event, ev.ToolCallStarted):
            self._started(row, event, session)
        else:
            _other(row, event)
        row["record"] = _encode(event).decode()
        return row

    def _started(self, row: EventRow, event: ev.ToolCallStarted, session: Session) -> None:
        call = describe(event, row["time"] or 0, _RULES)
        _about_call(row, call)
        row["call_digest"] = call.fingerprint.to_bytes(8).hex()
        others = session.calls.get(event.call_id)
        if not others:
            session.calls[event.call_id] = [call]
            self._sessions.grow(session.calls)
        elif all(other.fingerprint != call.fingerprint for other in others):
            others.append(call)
            del others[:-SAME_ID]

    def _closes(self, row: EventRow, event: ev.ToolCallFinished, session: Session) -> OpenCall | None:
        """Call that a finish belongs to, paired as in the folds; None if its start was not seen."""
        ours = is_appended(event)
        if ours:
            row["appended"] = True
        known = session.calls.get(event.call_id)
        calls = known or []
        for position in range(len(calls) - 1, -1, -1):
            call = calls[position]
            if ours and call.event_id != event.correlation_id:
                continue
            del calls[position]  # the empty list is kept: it means that a call of this id has ended
            if ours:
                self._closed.keep((event.session_id, event.call_id), call)
            if not ours and (row["time"] or 0) >= min(call.deadline_ms, call.started_ms + LATE_MS):
                row["appended"], row["start_id"] = False, call.event_id
                self._late.keep(call.event_id, call)
            return call
        # Where the engine writes beside its log, the real finish may be read before the timeout that came before it.
        late = self._late.get(event.correlation_id or "") if ours else self._answered(row, event)
        if late is None:
            if known is None:
                session.calls[event.call_id] = []
                self._sessions.grow(session.calls)
            else:
                row["repeated"] = True
        return late

    def _answered(self, row: EventRow, event: ev.ToolCallFinished) -> OpenCall | None:
        """Call that the engine had closed before this finish arrived; None if there is none."""
        call = self._closed.get((event.session_id, event.call_id))
        if call is None or self._late.get(call.event_id) is not None:
            return None
        row["appended"], row["start_id"] = False, call.event_id
        self._late.keep(call.event_id, call)
        return call

    def _finished(self, row: EventRow, event: ev.ToolCallFinished, session: Session) -> ev.ToolCallFinished:
        at = row["time"] or 0
        known = self._closes(row, event, session)
        call = known or describe(start_of(event), at, _RULES)
        _about_call(row, call)
        if known is not None:
            row["started"] = known.started_ms
            row["call_digest"] = known.fingerprint.to_bytes(8).hex()
        elif event.duration_ms is not None:  # without the arguments the call cannot be identified
            row["started"] = at - int(event.duration_ms)
        event = self._sketcher.without_result(event, call)
        verdict = judge(event, call, self.rules)
        row["verdict"] = verdict.word
        if verdict.severity is not None:
            row["severity"] = verdict.severity
            if verdict.rule or (event.error is not None and event.error.severity):
                _about_judgement(row, event, call, verdict)
        if verdict.denied:
            row["denied"] = True
        if verdict.expected:
            row["expected"] = True
        sketch = event.result_sketch
        if digest := (sketch and sketch.digest) or event.result_digest:
            row["result_digest"] = digest
        if sketch and sketch.size and event.result_size is None:
            row["result_size"] = sketch.size
        if event.error is not None or verdict.word != "success":
            _about_error(row, reported(event), verdict.http_status)
        if known is not None and not verdict.neutral and "repeated" not in row:
            self._count_result(row, session)
        return event

    def _count_result(self, row: EventRow, session: Session) -> None:
        """Number of times the call gave this result; failures without a result are compared by signature."""
        result = row.get("result_digest") or row.get("signature")
        if result:
            place = row["call_digest"] or "", result
            times, acted = session.results.get(place) or (0, -1)
            if times and acted != session.acted:
                times = 0
            elif not times and row["tool_class"] == ToolClass.ACTION and row["verdict"] == "success":
                session.acted += 1
            row["same_result"] = times + 1
            session.results[place] = times + 1, session.acted
            if not times:
                self._sessions.grow(session.results)


def _about_call(row: EventRow, call: OpenCall) -> None:
    row["tool_name"], row["failure_key"], row["tool_class"] = call.tool_name, call.fine_key, call.tool_class
    if call.plugin_name:
        row["plugin_name"] = call.plugin_name
    if call.service:
        row["service"] = call.service


def _about_error(row: EventRow, error: ev.ErrorInfo, http_status: int | None) -> None:
    row["error_type"], row["error_code"] = error.type, None if error.code is None else str(error.code)
    row["http_status"] = http_status if http_status is not None else error.http_status
    if row["verdict"] == "failure":
        row["signature"] = signature(
            error.type or "", row["error_code"] or "", error.message or "", row.get("status") or ""
        )


_TAGS: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(ev.Event)}
_ABOUT = {"output_id": "about", "nudge_id": "about", "breaker_key": "about"}
_COLUMNS = columns_of(EventRow)
_OF_CALLS = frozenset({"tool_name", "plugin_name", "service", "failure_key", "tool_class"})
"""Columns of a finish that are copied from its start."""
_OF_SESSIONS = frozenset({"workspace_id", "user_id", "model"})
"""Columns whose missing values are filled with the session's last value."""

_CALLS = (ev.ToolCallStarted, ev.ToolCallFinished)

_USUAL = frozenset({"id", "session_id", "turn_index", "call_id", "status", "duration_ms"})
"""Fields present in nearly all events of the types that have them."""

_FILLED = (
    "partition offset arrived key size id type time session_id workspace_id user_id model turn_index record".split()
)
_FILLED_BY_CALLS = "call_id tool_name failure_key tool_class call_digest".split()
_FILLED_BY_FINISHES = "started status verdict duration_ms result_digest same_result result_size".split()
"""Columns that most rows of a type have."""


class _Copied(NamedTuple):
    """Template for rows of one event type.

    Attributes:
        blank: dictionary with the columns that most rows fill; copying it is cheaper than growing a new one.
        usual, usual_of: columns copied from fields of the event, and the function that reads them.
        seldom, seldom_of: the same for fields that are rarely present.
    """

    blank: dict[str, Any]
    usual: tuple[str, ...]
    usual_of: Callable[[Any], tuple[Any, ...]]
    seldom: tuple[str, ...]
    seldom_of: Callable[[Any], tuple[Any, ...]]


def _copied(kind: type[ev.Event]) -> _Copied:
    worked_out = {"type", "time", "severity", *_OF_SESSIONS, *(_OF_CALLS if kind in _CALLS else ())}
    fields = [name for name in kind.__struct_fields__ if _ABOUT.get(name, name) in _COLUMNS and name not in worked_out]
    usual = [name for name in fields if name in _USUAL]
    seldom = [name for name in fields if name not in _USUAL]
    filled = [
        *_FILLED,
        *(_FILLED_BY_CALLS if kind in _CALLS else ()),
        *(_FILLED_BY_FINISHES if kind is ev.ToolCallFinished else ()),
    ]
    return _Copied(
        dict.fromkeys(filled),
        tuple(usual),
        attrgetter(*usual),
        tuple(_ABOUT.get(name, name) for name in seldom),
        attrgetter(*seldom),
    )


_COPIED = {kind: _copied(kind) for kind in get_args(ev.Event)}


def _about_judgement(row: EventRow, event: ev.ToolCallFinished, call: OpenCall, verdict: Verdict) -> None:
    """Columns of a failure that rules or its publisher judge, if the failure by itself is another."""
    error = replace(event.error, severity=None) if event.error else None
    by_itself = judge(replace(event, error=error), call, _RULES).severity
    if by_itself is not verdict.severity:
        row["reclassified"], row["judged_by"] = by_itself, f"rules: {verdict.rule}" if verdict.rule else "publisher"


def _other(row: EventRow, event: ev.Event) -> None:
    """Columns of events that are neither a start nor a finish."""
    if isinstance(event, ev.ModelText) and event.text is not None:
        row["text_size"] = len(event.text)
    elif isinstance(event, ev.FailureReported):
        error = event.error or _NO_ERROR
        failure = Failure(error.type or "", error.message or "", error.http_status, str(error.code or ""))
        found = event.severity or error.severity or classify(failure, status="error", dangerous=False)
        row["verdict"], row["severity"] = "failure", Severity(found)
        _about_error(row, error, error.http_status)
    elif isinstance(event, ev.SuccessReported):
        row["verdict"] = "success"
    elif isinstance(event, ev.TimePassed):
        row["appended"] = True
