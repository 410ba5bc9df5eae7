"""Calls of a session, assembled from their events: start, permission, finish, late answer.

Calls are paired, keyed and classified by the same functions as in the folds. Unlike the folds, this keeps all calls,
and accepts a late answer before or after the finish that the engine wrote for its call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import orjson

from ...errors import EventRejected
from ...projections.calls.classify import Failure
from ...projections.session.appended import is_appended
from ...projections.session.calls import args_of, describe, start_of
from ...projections.session.records import OpenCall
from ...projections.session.verdicts import Verdict as Judged
from ...projections.session.verdicts import judge
from ...rules.rules import Rules
from ...schemas.codec import decode_event
from ...schemas.event_base import epoch_ms
from ...schemas.events import PermissionRequested, PermissionResolved, ToolCallFinished, ToolCallStarted
from ...schemas.vocabulary import Status, ToolClass
from ..signatures import signature

Record = dict[str, Any]
"""Parsed event or decision in the wire format."""

SUMMARY_CHARS = 120
"""Maximum characters of the summary of a call's arguments."""

_FIRST = ("command", "cmd", "path", "file_path", "url", "query", "pattern", "name")
"""Most informative arguments, shown first and without their names."""

TOLD = frozenset({"tool_call.started", "tool_call.finished", "permission.requested", "permission.resolved"})
"""Types of events that belong to calls."""


class Verdict(StrEnum):
    """Verdict on a call."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ANSWERED = "answered"
    """The tool worked but returned an error: an expected failure, or one that is not a fault."""
    DENIED = "denied"
    CANCELLED = "cancelled"
    CACHED = "cached"
    NOT_MADE = "not made"
    """Its circuit was open."""
    LATE = "late"
    """It was answered after its deadline, when the engine had already closed it."""
    LOST = "lost"
    """Its outcome is unknown."""
    WAITING = "waiting"
    """It waits for a permission."""
    PENDING = "pending"


@dataclass(slots=True)
class Call:
    """One call.

    Attributes:
        id: id of its first event: the start, or a finish without a start.
        finish_id: id of the event with its outcome; empty while open.
        call_id: as the publisher names it.
        workspace: workspace of its events; empty if none.
        summary: its arguments in one line, at most `SUMMARY_CHARS`.
        agent: agent of the session that made it; empty for the main agent.
        model: model that made it; empty if unknown.
        turn: turn of the session; None if unknown.
        key: trust key, e.g. `bash|command=git`.
        service: domain or MCP server; empty if none.
        tier: model tier of a recursive call.
        tool_class: class of its effect, e.g. `read` or `action`.
        fingerprint: equal for equal tool and arguments; 0 if the arguments are unknown.
        started_ms, ended_ms: milliseconds since 1970; ended: None while it goes on.
        duration_ms: as the publisher measured it, else from start to finish; None while unknown.
        severity: severity of a failure, as in the folds.
        error: message of a failure, unchanged.
        told: type, code, message and status of a failure, from which its signature is made.
        counts_as: outcome counted by the folds: success, failure, or neutral.
        expected: a failure that no rule counts.
        result: equal for equal results or errors; 0 if unknown.
        cost_usd: US dollars; None if unknown.
        attempts: attempts, including retries; None if unknown.
        waited_ms: milliseconds that it waited for a permission.
        times: number of times this call gave this result, including this one, since another call gave a new result.
        events: ids of its events, oldest first.
        approvals: operators' approvals it used.
    """

    id: str
    call_id: str
    session_id: str
    workspace: str
    tool: str
    started_ms: int
    finish_id: str = ""
    summary: str = ""
    agent: str = ""
    model: str = ""
    turn: int | None = None
    key: str = ""
    service: str = ""
    tier: str = ""
    tool_class: ToolClass = ToolClass.UNKNOWN
    fingerprint: int = 0
    ended_ms: int | None = None
    duration_ms: float | None = None
    verdict: Verdict = Verdict.PENDING
    severity: str = ""
    error: str = ""
    told: tuple[str, str, str, str] | None = None
    counts_as: str = ""
    expected: bool = False
    result: int = 0
    cost_usd: float | None = None
    attempts: int | None = None
    waited_ms: int = 0
    times: int = 0
    events: list[str] = field(default_factory=list)
    approvals: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """Signature of a failure: its error without varying parts; empty for other calls."""
        return signature(*self.told) if self.told is not None else ""

    @property
    def failing(self) -> bool:
        """True if the filter for failures shows the call."""
        failed = self.counts_as == "failure" and not self.expected
        return failed or self.verdict in {Verdict.LOST, Verdict.LATE, Verdict.NOT_MADE}

    def same_as(self, other: Call) -> bool:
        """True if both have the same tool, arguments and result."""
        return (
            self.fingerprint != 0
            and self.fingerprint == other.fingerprint
            and self.verdict is other.verdict
            and self.result == other.result
            and (self.result != 0 or self.ended_ms is None)
            and self.agent == other.agent
        )


class Calls:
    """Assembles calls of any sessions, event by event.

    Attributes:
        made: all calls, in the order of their first events.
        by_event: the call of each event that calls are made of.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        """Classify by the given rules, default: the default rules."""
        self.made: list[Call] = []
        self.by_event: dict[str, Call] = {}
        self._rules = rules or Rules()
        self._open: dict[tuple[str, str], list[tuple[Call, OpenCall]]] = defaultdict(list)
        self._closed: dict[tuple[str, str], tuple[Call, OpenCall]] = {}
        self._by_start: dict[str, tuple[Call, OpenCall]] = {}
        self._asked: dict[tuple[str, str], PermissionRequested] = {}
        self._results: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._acted: dict[str, int] = defaultdict(int)

    def add(self, record: Record) -> Call | None:
        """Add an event; returns its call, or None if it has none or is a duplicate."""
        if record.get("type") not in TOLD or record.get("id") in self.by_event:
            return None
        try:
            event = decode_event(orjson.dumps(record))
        except EventRejected:
            return None
        call: Call | None = None
        if isinstance(event, ToolCallStarted):
            call = self._started(event)
        elif isinstance(event, ToolCallFinished):
            call = self._finished(event)
        elif isinstance(event, PermissionRequested):
            call = self._asked_for(event)
        elif isinstance(event, PermissionResolved):
            call = self._resolved(event)
        if call is not None:
            call.events.append(event.id)
            self.by_event[event.id] = call
        return call

    def _started(self, event: ToolCallStarted) -> Call | None:
        place = event.session_id, event.call_id
        described = describe(event, epoch_ms(event.time), self._rules)
        if any(one.fingerprint == described.fingerprint for _, one in self._open[place]):
            return None
        private = event.args is msgspec.UNSET and event.args_digest is None
        call = self._new(event, described, known=not private)
        call.summary = summary(args_of(event)) if event.args_digest is None else f"private, digest {event.args_digest}"
        call.approvals = event.approvals
        self._open[place].append((call, described))
        self._by_start[event.id] = call, described
        if place in self._asked:
            call.verdict = Verdict.WAITING
        return call

    def _new(self, event: ToolCallStarted, described: OpenCall, *, known: bool) -> Call:
        call = Call(
            event.id, event.call_id, event.session_id, event.workspace_id or "", event.tool_name, described.started_ms
        )
        call.agent, call.model, call.turn = event.agent_id or "", event.model or "", event.turn_index
        call.key, call.service, call.tier = described.fine_key, described.service, described.tier
        call.tool_class = described.tool_class
        call.fingerprint = described.fingerprint if known else 0
        self.made.append(call)
        return call

    def _finished(self, event: ToolCallFinished) -> Call | None:
        place = event.session_id, event.call_id
        at = epoch_ms(event.time)
        if is_appended(event):
            found = self._by_start.get(event.correlation_id or "")
            if found is None or (found[0].finish_id and not self._came_late(found[0], at)):
                return None
            if found[0].finish_id:  # its late answer was read first
                found[0].verdict, found[0].counts_as = Verdict.LATE, "neutral"
                return found[0]
            self._open[place] = [one for one in self._open[place] if one[0] is not found[0]]
        elif self._open[place]:
            found = self._open[place].pop()
        elif place in self._closed:
            return self._answered_late(self._closed.pop(place)[0], event, at)
        else:
            described = describe(start_of(event), at, self._rules)
            found = self._new(start_of(event), described, known=False), described
            if event.duration_ms is not None:
                found[0].started_ms = at - int(event.duration_ms)
            self._by_start[event.id] = found
        call, described = found
        call.finish_id, call.ended_ms = event.id, at
        call.duration_ms = event.duration_ms if event.duration_ms is not None else float(max(0, at - call.started_ms))
        call.cost_usd, call.attempts = event.cost_usd, event.attempts
        call.model = call.model or event.model or ""
        call.workspace = call.workspace or event.workspace_id or ""
        self._judge(call, described, event)
        if is_appended(event):
            self._closed[place] = found
            call.duration_ms = None
        else:
            self._count(call)
        return call

    @staticmethod
    def _came_late(call: Call, closed_ms: int) -> bool:
        return call.verdict is not Verdict.LATE and call.ended_ms is not None and call.ended_ms >= closed_ms

    @staticmethod
    def _answered_late(call: Call, event: ToolCallFinished, at: int) -> Call:
        call.verdict, call.counts_as = Verdict.LATE, "neutral"
        call.ended_ms, call.finish_id = at, event.id
        call.duration_ms = event.duration_ms if event.duration_ms is not None else float(max(0, at - call.started_ms))
        return call

    def _judge(self, call: Call, described: OpenCall, event: ToolCallFinished) -> None:
        judged = judge(event, described, self._rules)
        call.result, call.counts_as = judged.result, judged.word
        call.severity = str(judged.severity or "")
        if judged.word == "success":
            call.verdict = Verdict.SUCCEEDED
        elif judged.word == "failure":
            call.expected = judged.expected
            call.verdict = Verdict.ANSWERED if judged.expected or judged.answered else Verdict.FAILED
            self._error(call, event, judged)
        elif judged.denied:
            call.verdict = Verdict.DENIED
        elif event.status is Status.LOST:
            call.verdict = Verdict.LOST
        elif event.status in {Status.CIRCUIT_OPEN, Status.REJECTED}:
            call.verdict = Verdict.NOT_MADE
        else:
            call.verdict = Verdict.CACHED if event.from_cache else Verdict.CANCELLED

    @staticmethod
    def _error(call: Call, event: ToolCallFinished, judged: Judged) -> None:
        if is_appended(event):
            call.error = "no answer by the deadline that was stated"
            call.told = "", "", call.error, ""
            return
        error, told = event.error, judged.told or Failure()
        code = str(error.code or error.http_status or "") if error is not None else told.code
        kind, message = told.type, judged.message
        call.error = message.strip() or kind or event.status
        call.told = kind, code, message, str(event.status)

    def _count(self, call: Call) -> None:
        """Number of times the call gave this result; an action with a new result resets the count."""
        if call.counts_as == "neutral" or not call.fingerprint or not call.result:
            return
        place = call.session_id, call.fingerprint, call.result
        times, acted = self._results.get(place) or (0, -1)
        if times and acted != self._acted[call.session_id]:
            times = 0
        elif not times and call.tool_class is ToolClass.ACTION and call.counts_as == "success":
            self._acted[call.session_id] += 1
        call.times = times + 1
        self._results[place] = times + 1, self._acted[call.session_id]

    def _asked_for(self, event: PermissionRequested) -> Call | None:
        place = event.session_id, event.call_id
        self._asked[place] = event
        if not self._open[place]:
            return None
        call = self._open[place][-1][0]
        call.verdict = Verdict.WAITING
        return call

    def _resolved(self, event: PermissionResolved) -> Call | None:
        place = event.session_id, event.call_id
        asked = self._asked.pop(place, None)
        if not self._open[place]:
            return None
        call = self._open[place][-1][0]
        at = epoch_ms(event.time)
        if asked is not None:
            call.waited_ms += max(0, at - max(epoch_ms(asked.time), call.started_ms))
        if event.granted:
            call.verdict = Verdict.PENDING
        else:
            self._open[place].pop()
            call.verdict, call.counts_as, call.ended_ms, call.finish_id = Verdict.DENIED, "neutral", at, event.id
        return call


def calls_of(events: Iterable[Record], rules: Rules | None = None) -> list[Call]:
    """Assemble all calls from events, in the order of their start."""
    calls = Calls(rules)
    for event in events:
        calls.add(event)
    return calls.made


def summary(args: Record) -> str:
    """Arguments in one line: the most informative first and without its name, then the others."""
    first = next((name for name in _FIRST if isinstance(args.get(name), str)), None)
    if first is None and len(args) == 1:
        first = next(iter(args))
    parts = [_short(args[first], SUMMARY_CHARS)] if first is not None else []
    for name, value in args.items():
        if name != first:
            parts.append(f"{name}={_short(value, 40)}")
        if sum(map(len, parts)) > SUMMARY_CHARS:
            break
    return shortened(", ".join(parts), SUMMARY_CHARS)


def shortened(text: str, most: int) -> str:
    """A text in one line, cut to a maximum of characters with an ellipsis."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1].rstrip()}…"


def _short(value: object, most: int) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode(errors="replace")
    return shortened(text, most)
