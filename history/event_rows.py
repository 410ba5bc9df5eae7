"""Events as rows: what an analyst filters by in columns of its own, the rest as JSON, results never.

A result is digested and classified, then dropped. What stays in its place lets the folds come to the same decisions
when the recorded event is folded again (`whatif`): equal results have equal digests, and a result that reports a
failure leaves that failure. Severity, failure key and tool class are those that the folds see under the default rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast, get_args

import msgspec
import orjson
from msgspec import UNSET, Raw

from ..projections.calls import fingerprints
from ..projections.calls.classify import MAX_MESSAGE_CHARS, Failure, classify, failure_in_result
from ..projections.session.calls import args_of, describe, is_our_timeout, start_of
from ..projections.session.state import OpenCall
from ..projections.session.verdicts import Verdict, judge
from ..schemas import events as ev
from ..schemas.codec import decode_event
from ..schemas.errors import EventRejected, RejectReason
from ..schemas.rules import Rules
from ..schemas.vocabulary import Severity, ToolClass
from .columns import Moment, Row, columns_of

REMEMBERED = 65_536
"""Starts and ids of each partition kept in memory at least, to say more about the finishes and repeats that follow."""

LATE_MS = 60_000
"""How long a call takes before its finish may have come too late; deadlines that are set are minutes."""

SAME_ID = 16
"""Open calls under one id of which a session's latest are remembered."""

SIGNATURE_CHARS = 160
_K = TypeVar("_K")
_V = TypeVar("_V")
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_RULES = Rules()
_NO_ERROR = ev.ErrorInfo()
_encode = msgspec.json.Encoder().encode

_DIGEST = re.compile(r"[a-p]{16}")
_STAND_IN_KEYS = frozenset({"digest", "isError", "error", "http_status", "content"})
_QUOTED = re.compile(r"\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|`[^`\n]{1,200}`")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w<])(?:~|\.{1,2})?(?:/[\w.@%+~-]+)+/?|\b[\w.@-]+(?:/[\w.@%+~-]+)+/?")
_NUMBER = re.compile(r"\b[0-9a-f]{12,}\b|(?<![A-Za-z\d])(?:0x[0-9a-fA-F]+|\d+(?:[.,:-]\d+)*)")


class EventRow(Row, total=False):
    """One record of the `events` topic.

    Attributes:
        workspace_id, user_id, model: of the event, or the last that its session has named, as the folds go by them.
        appended: the engine wrote it itself: a call that never finished, time that passed. False, and not NULL, on a
            finish that came so late that the engine may have closed its call before.
        repeated: an event of this id was recorded before, or another finish of the call; folds ignore it, and so do the
            views.
        start_id: on a finish that came late, the start of its call: if the engine has closed that call by then, with an
            appended finish that names the same start, this one is ignored.
        service: MCP server or domain of the call.
        failure_key: trust key of the call, e.g. `bash|command=git`; on a finish, that of its start.
        tool_class: what the call does to the world.
        call_digest: equal for calls with equal tool and arguments.
        started: when the call of this finish started, where that was seen.
        verdict: success, failure or neutral.
        severity: of a failure.
        denied: the user refused the call.
        signature: the error with everything that varies taken out; groups failures across agents.
        result_digest: equal for equal results.
        same_result: how often this call has given this result in its session, this time included, since the last
            other call that was an action and brought something new.
        about: `output_id` of a false alarm, `breaker_key` of a request for a probe.
        text_size: characters of a model's message.
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
    started: Moment | None
    status: str | None
    verdict: str | None
    severity: str | None
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


class _Recent(Generic[_K, _V]):
    """The latest entries, one to two times `REMEMBERED`: two dictionaries, of which the older is dropped whole."""

    def __init__(self) -> None:
        self._young: dict[_K, _V] = {}
        self._old: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        found = self._young.get(key)
        return found if found is not None else self._old.get(key)

    def keep(self, key: _K, value: _V) -> None:
        self._young[key] = value
        if len(self._young) > REMEMBERED:
            self._old, self._young = self._young, {}


class _Session:
    """What a session has named last, and how many of its calls were actions that brought something new."""

    __slots__ = ("acted", "named")

    def __init__(self) -> None:
        self.acted = 0
        self.named: tuple[str | None, ...] = (None, None, None)


class EventReader:
    """Makes rows of one partition's events, in order."""

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._open: _Recent[tuple[str, str], list[OpenCall]] = _Recent()
        self._late: _Recent[str, OpenCall] = _Recent()
        self._seen: _Recent[str, bool] = _Recent()
        self._results: _Recent[tuple[str, str, str], tuple[int, int]] = _Recent()
        self._sessions: _Recent[str, _Session] = _Recent()

    def row(self, partition: int, offset: int, arrived_ms: int, key: str | None, value: bytes | None) -> EventRow:
        """The row of one record; never raises: what cannot be read keeps its place and the reason."""
        row: EventRow = {"partition": partition, "offset": offset, "size": 0 if value is None else len(value)}
        if arrived_ms > 0:
            row["arrived"] = arrived_ms
        if key is not None:
            row["key"] = key
        try:
            event = decode_event(value)
            kind = type(event)
            row["id"], row["type"], row["time"] = event.id, _TAGS[kind], ev.epoch_ms(event.time)
            columns = cast("dict[str, Any]", row)
            names, values_of = _COPIED[kind]
            for name, given in zip(names, values_of(event), strict=True):
                if given is not None:
                    columns[name] = given
            session = self._named(columns, event.session_id)
            if self._seen.get(event.id):
                row["repeated"] = True
            self._seen.keep(event.id, value=True)
            if isinstance(event, ev.ToolCallFinished):
                event = self._finished(row, event, session)
            elif isinstance(event, ev.ToolCallStarted):
                self._started(row, event)
            else:
                _other(row, event)
            row["record"] = _encode(event).decode()
        except EventRejected as rejected:
            row["fault"] = str(rejected.reason)
        except Exception:  # noqa: BLE001 - a fault of ours must not stop the recording; the folds see to it likewise
            kept = {name: value for name, value in row.items() if name in _PLACE}
            return cast("EventRow", kept | {"fault": str(RejectReason.INTERNAL_ERROR)})
        return row

    def _named(self, columns: dict[str, Any], session_id: str) -> _Session:
        """Add what the session has named before and this event does not."""
        session = self._sessions.get(session_id)
        if session is None:
            session = _Session()
            self._sessions.keep(session_id, session)
        told = columns.get("workspace_id"), columns.get("user_id"), columns.get("model")
        if told != session.named:  # the usual event names what its session has named
            session.named = tuple(new or old for new, old in zip(told, session.named, strict=True))
            columns.update((name, value) for name, value in zip(_OF_SESSIONS, session.named, strict=True) if value)
        return session

    def _started(self, row: EventRow, event: ev.ToolCallStarted) -> None:
        call = describe(event, args_of(event), row["time"] or 0, _RULES)
        _about_call(row, call)
        row["call_digest"] = f"{call.fingerprint:016x}"
        place = event.session_id, event.call_id
        others = self._open.get(place)
        if not others:
            self._open.keep(place, [call])
        elif all(other.fingerprint != call.fingerprint for other in others):
            others.append(call)
            del others[:-SAME_ID]

    def _closes(self, row: EventRow, event: ev.ToolCallFinished) -> OpenCall | None:
        """The call that a finish belongs to, as the folds pair them; None where its start was not seen."""
        place = event.session_id, event.call_id
        ours = is_our_timeout(event)
        if ours:
            row["appended"] = True
        known = self._open.get(place)
        calls = known or []
        for position in range(len(calls) - 1, -1, -1):
            call = calls[position]
            if ours and call.event_id != event.correlation_id:
                continue
            del calls[position]  # an empty list stays and says that a call of this id has ended
            if not ours and (row["time"] or 0) >= min(call.deadline_ms, call.started_ms + LATE_MS):
                row["appended"], row["start_id"] = False, call.event_id
                self._late.keep(call.event_id, call)
            return call
        # Where the engine writes beside its log, the real finish may be read before the timeout that came before it.
        late = self._late.get(event.correlation_id or "") if ours else None
        if late is None:
            if known is None:
                self._open.keep(place, [])
            else:
                row["repeated"] = True
        return late

    def _finished(self, row: EventRow, event: ev.ToolCallFinished, session: _Session) -> ev.ToolCallFinished:
        at = row["time"] or 0
        known = self._closes(row, event)
        call = known or describe(start_of(event), {}, at, _RULES)
        _about_call(row, call)
        if known is not None:
            row["started"] = known.started_ms
            row["call_digest"] = f"{known.fingerprint:016x}"
        elif event.duration_ms is not None:  # and without the arguments nothing says which call it was
            row["started"] = at - int(event.duration_ms)
        raw = _raw(event)
        verdict = judge(event, call, _RULES)
        row["verdict"] = verdict.word
        if verdict.severity is not None:
            row["severity"] = verdict.severity
        if verdict.denied:
            row["denied"] = True
        if verdict.expected:
            row["expected"] = True
        if raw and event.result_size is None:
            row["result_size"] = len(raw)
        event, stand_in = _without_result(event, raw, verdict)
        if digest := stand_in.get("digest") or event.result_digest:
            row["result_digest"] = digest
        if event.error is not None or verdict.word != "success":
            _about_error(row, event.error, _reported(stand_in), verdict.http_status)
        if known is not None and not verdict.neutral and "repeated" not in row:
            self._count_result(row, session)
        return event

    def _count_result(self, row: EventRow, session: _Session) -> None:
        """How often the call has given this result; failures without a result are told apart by their signature."""
        result = row.get("result_digest") or row.get("signature")
        if result:
            place = (row["session_id"] or "", row["call_digest"] or "", result)
            times, acted = self._results.get(place) or (0, -1)
            if times and acted != session.acted:
                times = 0
            elif not times and row["tool_class"] == ToolClass.ACTION and row["verdict"] == "success":
                session.acted += 1
            row["same_result"] = times + 1
            self._results.keep(place, (times + 1, session.acted))


def _raw(event: ev.ToolCallFinished) -> bytes:
    raw = b"" if event.result is UNSET else bytes(event.result)
    return b"" if raw == b"null" else raw


def _without_result(
    event: ev.ToolCallFinished, raw: bytes, verdict: Verdict
) -> tuple[ev.ToolCallFinished, dict[str, Any]]:
    """The event as it is stored, and what stands in it in place of the result; empty where nothing does."""
    if not raw:
        return (event if event.result is UNSET else msgspec.structs.replace(event, result=UNSET)), {}
    parsed = ev.json_of(Raw(raw)) if raw[:1] in {b"{", b"["} else None
    if isinstance(parsed, dict) and _is_stand_in(parsed):
        return event, parsed
    told = event.error is not None and event.error != _NO_ERROR
    known = verdict.result if not (told or verdict.neutral) else fingerprints.result_fingerprint(raw, parsed)
    digest = f"{known:016x}".translate(_LETTERS)  # letters only: digits could be taken for a volatile part
    if told:
        return msgspec.structs.replace(event, result=UNSET, result_digest=digest), {}
    made = _stand_in(parsed, digest)
    return msgspec.structs.replace(event, result=Raw(orjson.dumps(made))), made


def _is_stand_in(result: dict[str, Any]) -> bool:
    """Whether this is no result but what was recorded in the place of one."""
    digest = result.get("digest")
    return isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None and result.keys() <= _STAND_IN_KEYS


def _stand_in(result: Any, digest: str) -> dict[str, Any]:
    """What takes the place of a result: its digest and, where it tells of a failure, that failure as folds read it."""
    made: dict[str, Any] = {"digest": digest}
    failure = failure_in_result(result)
    if failure is None:
        return made
    told = {"type": failure.type, "message": _masked(failure.message), "code": failure.code}
    made["isError"] = True
    if any(told.values()):
        made["error"] = {name: text for name, text in told.items() if text}
    if failure.http_status is not None:
        made["http_status"] = failure.http_status
    content = result.get("content")
    first = content[0].get("text") if isinstance(content, list) and content and isinstance(content[0], dict) else None
    if isinstance(first, str) and not failure.message:
        made["content"] = [{"text": _masked(first)}]
    return made


def _masked(text: str) -> str:
    return fingerprints.mask(text[:MAX_MESSAGE_CHARS].encode(errors="replace")).decode(errors="replace")


def _reported(stand_in: dict[str, Any]) -> dict[str, Any]:
    """The failure that stands in for a result."""
    content = stand_in.get("content")
    return stand_in.get("error") or ({"message": content[0]["text"]} if content else {})


def _about_call(row: EventRow, call: OpenCall) -> None:
    row["tool_name"], row["failure_key"], row["tool_class"] = call.tool_name, call.fine_key, call.tool_class
    if call.plugin_name:
        row["plugin_name"] = call.plugin_name
    if call.service:
        row["service"] = call.service


def _about_error(row: EventRow, error: ev.ErrorInfo | None, told: dict[str, Any], http_status: int | None) -> None:
    kind = (error.type if error else None) or told.get("type")
    message = (error.message if error else None) or told.get("message")
    code = (error.code if error else None) or told.get("code")
    row["error_type"], row["error_code"] = kind, None if code is None else str(code)
    row["http_status"] = http_status if http_status is not None else error.http_status if error else None
    if row["verdict"] == "failure":
        row["signature"] = signature(kind or "", row["error_code"] or "", message or "", row.get("status") or "")


def signature(kind: str, code: str, message: str, status: str = "") -> str:
    """A failure in words that different agents share: names, numbers, paths and quotations taken out.

    `Timeout after 30s on /home/ann/x.py` and `Timeout after 45s on /srv/y.py` have one signature.
    """
    text = message.strip().partition("\n")[0][:600]
    for pattern, mark in ((_URL, "<url>"), (_QUOTED, "<text>"), (_PATH, "<path>"), (_NUMBER, "<n>")):
        text = pattern.sub(mark, text)
    head = " ".join(word for word in (kind, code) if word) or ("" if text else status)
    return f"{head}: {text}".strip(": ")[:SIGNATURE_CHARS]


_TAGS: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(ev.Event)}
_ABOUT = {"output_id": "about", "breaker_key": "about"}
_COLUMNS = columns_of(EventRow)
_PLACE = frozenset({"partition", "offset", "arrived", "key", "size"})
_OF_CALLS = frozenset({"tool_name", "plugin_name", "service", "failure_key", "tool_class"})
"""Columns that say of a finish what its start said."""


_OF_SESSIONS = ("workspace_id", "user_id", "model")
"""Columns of which every event counts as saying what its session has said last."""

_CALLS = (ev.ToolCallStarted, ev.ToolCallFinished)


def _copied(kind: type[ev.Event]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    worked_out = {"id", "type", "time", "severity", *(_OF_CALLS if kind in _CALLS else ())}
    fields = [name for name in kind.__struct_fields__ if _ABOUT.get(name, name) in _COLUMNS and name not in worked_out]
    return tuple(_ABOUT.get(name, name) for name in fields), attrgetter(*fields)


_COPIED = {kind: _copied(kind) for kind in get_args(ev.Event)}
"""Columns that each kind of event fills as they are, and what reads them all."""


def _other(row: EventRow, event: ev.Event) -> None:
    """Columns of what is neither start nor finish."""
    if isinstance(event, ev.ModelText) and event.text is not None:
        row["text_size"] = len(event.text)
    elif isinstance(event, ev.FailureReported):
        error = event.error or _NO_ERROR
        failure = Failure(error.type or "", error.message or "", error.http_status, str(error.code or ""))
        found = event.severity or error.severity or classify(failure, status="error", dangerous=False)
        row["verdict"], row["severity"] = "failure", Severity(found)
        _about_error(row, error, {}, error.http_status)
    elif isinstance(event, ev.SuccessReported):
        row["verdict"] = "success"
    elif isinstance(event, ev.TimePassed):
        row["appended"] = True
