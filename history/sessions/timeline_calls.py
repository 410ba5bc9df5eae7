"""Calls of sessions with all that is told about them, as their records say.

The session stage pairs, keys and judges (`projections/session/session_stage.py`). A record that it has written stands;
events whose records nobody has kept are folded again, under the rules that are given, and so are calls that go on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from ...errors import EventRejected
from ...projections.emitter import OutputEmitter
from ...projections.session.records import CallRecord
from ...projections.session.session_stage import SessionStage
from ...projections.session.session_state import SessionState
from ...rules.rules import RuleSet
from ...schemas.codec import decode_event
from ...schemas.event_base import epoch_ms
from ...schemas.events import Event, PermissionRequested, PermissionResolved, ToolCallStarted
from ...schemas.vocabulary import CallEnd, ToolClass

Record = dict[str, Any]  # Parsed event, decision or record of a call in the wire format

# Types of events that belong to calls
TOLD = frozenset({"tool_call.started", "tool_call.finished", "permission.requested", "permission.resolved"})


class CallVerdict(StrEnum):
    """State of a call in the timeline: its outcome, or the reason why it waits."""

    SUCCEEDED = CallEnd.SUCCEEDED
    FAILED = CallEnd.FAILED
    ANSWERED = CallEnd.ANSWERED
    REJECTED = CallEnd.REJECTED
    REFUSED = CallEnd.REFUSED
    DENIED = CallEnd.DENIED
    CANCELLED = CallEnd.CANCELLED
    CACHED = CallEnd.CACHED
    LOST = CallEnd.LOST
    WAITING = "waiting"  # It waits for a permission
    PENDING = "pending"


_NOT_RUN = frozenset({CallVerdict.LOST, CallVerdict.REFUSED, CallVerdict.REJECTED})


@dataclass(slots=True)
class TimelineCall:
    """One call.

    Attributes:
        id: id of its first event: the start, or a finish without a start.
        finish_id: id of the event with its outcome; empty while open.
        call_id: as the publisher names it.
        workspace: workspace of its events; empty if none.
        summary: its request in one line.
        agent: agent of the session that made it; empty for the main agent.
        model: model that made it; empty if unknown.
        turn: turn of the session; None if unknown.
        key: trust key, e.g. `bash|command=git`.
        service: domain or MCP server; empty if none.
        tier: model tier of a recursive call.
        tool_class: class of its effect, e.g. `read` or `action`.
        fingerprint: equal for equal tool and arguments.
        started_ms, ended_ms: milliseconds since 1970; ended: None while it goes on.
        duration_ms: as the publisher measured it, else from start to finish; None while unknown.
        severity: severity of a failure.
        error: beginning of the message of what was no success.
        signature: signature of a failure: its error without varying parts; empty for other calls.
        counts_as: outcome counted by the folds: success, failure, or neutral; empty while it goes on.
        expected: a failure that no rule counts.
        result: equal for equal results or errors; empty if unknown.
        cost_usd: US dollars; None if unknown.
        attempts: attempts, including retries; None if unknown.
        waited_ms: milliseconds that it waited for a permission.
        times: how often the call has given this result lately, this time included, since its agent's last progress.
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
    fingerprint: str = ""
    ended_ms: int | None = None
    duration_ms: float | None = None
    verdict: CallVerdict = CallVerdict.PENDING
    severity: str = ""
    error: str = ""
    signature: str = ""
    counts_as: str = ""
    expected: bool = False
    result: str = ""
    cost_usd: float | None = None
    attempts: int | None = None
    waited_ms: int = 0
    times: int = 0
    events: list[str] = field(default_factory=list)
    approvals: tuple[str, ...] = ()

    @property
    def failing(self) -> bool:
        """True if the filter for failures shows the call."""
        return (self.counts_as == "failure" and not self.expected) or self.verdict in _NOT_RUN

    def same_as(self, other: TimelineCall) -> bool:
        """True if both have the same tool, arguments and result."""
        return (
            self.fingerprint == other.fingerprint
            and self.verdict is other.verdict
            and self.result == other.result
            and (self.result != "" or self.ended_ms is None)
            and self.agent == other.agent
        )


class _SessionFold:
    """State of a session's fold, and its time."""

    def __init__(self) -> None:
        self.state = SessionState()
        self.now = 0


_STAGE = SessionStage()


class CallAssembler:
    """Assembles calls of any sessions, event by event."""

    def __init__(self, rules: RuleSet | None = None, records: Mapping[str, Record] | None = None) -> None:
        """Take the records of calls by the events that ended them; without one, judge by rules (default: shipped)."""
        self.made: list[TimelineCall] = []  # all calls, in the order of their first events
        self.ended: list[TimelineCall] = []  # those that have ended, in the order of their ends
        self.by_event: dict[str, TimelineCall] = {}  # the call of each event that calls are made of
        self._rules = rules or RuleSet()
        self._records = records or {}
        self._by_start: dict[str, TimelineCall] = {}
        self._sessions: defaultdict[str, _SessionFold] = defaultdict(_SessionFold)
        self._emit = OutputEmitter()

    def add(self, record: Record) -> TimelineCall | None:
        """Add an event; returns its call, or None if it has none or is a duplicate."""
        if record.get("id") in self.by_event:
            return None
        try:
            event = decode_event(orjson.dumps(record))
        except EventRejected:
            return None
        session = self._sessions[event.session_id]
        for first, ended in self._folded(session, event):
            self._end(first, ended)
        call: TimelineCall | None
        if isinstance(event, ToolCallStarted):
            call = self._started(event, session)
        elif isinstance(event, PermissionRequested | PermissionResolved):
            call = self._waiting(event, session)
        else:
            return self.by_event.get(event.id)
        if call is not None and event.id not in self.by_event:
            call.events.append(event.id)
            self.by_event[event.id] = call
        return call

    def _folded(self, session: _SessionFold, event: Event) -> Iterable[tuple[str, Record]]:
        """Records of calls that an event ends, itself or because of its time, with the events that they began with."""
        emit, at = self._emit, max(session.now, epoch_ms(event.time))
        session.now = at
        starts = {one.call_id: one.event_id for one in session.state.open_calls}
        emit.begin(event.id, at)
        _STAGE.fold(session.state, event, at, self._rules, emit)
        outputs, emit.outputs = emit.outputs, []
        for output in outputs:
            if output.type == "call.outcome" and output.value is not None:
                made = orjson.loads(output.value)
                if made.get("call_id") and "outcome" in made:
                    cause = made["cause"]
                    yield starts.get(made["call_id"], cause), self._records.get(cause, made)

    def _started(self, event: ToolCallStarted, session: _SessionFold) -> TimelineCall | None:
        opened = session.state.open_calls[-1] if session.state.open_calls else None
        if opened is None or opened.event_id != event.id:
            return None
        call = self._by_start[event.id] = TimelineCall(
            event.id, event.call_id, event.session_id, event.workspace_id or "", event.tool_name, opened.started_ms
        )
        call.agent, call.model, call.turn = event.agent_id or "", event.model or "", event.turn_index
        call.key, call.service, call.tier = opened.fine_key, opened.service, opened.tier
        call.tool_class, call.fingerprint, call.approvals = (
            opened.tool_class,
            f"{opened.fingerprint:016x}",
            event.approvals,
        )
        private = f"private, digest {event.args_digest}" if event.args_digest is not None else ""
        call.summary = opened.summary or private
        if opened.waiting_since:
            call.verdict = CallVerdict.WAITING
        self.made.append(call)
        return call

    def _end(self, first: str, record: Record) -> None:
        call = self._by_start.get(first)
        if call is None:
            call = self._by_start[first] = TimelineCall(
                first, record["call_id"], record["session_id"], "", record["tool_name"], record["started_ms"]
            )
            self.made.append(call)
        ended = record.get("ended_ms")
        call.finish_id, call.ended_ms = record["cause"], record["time_ms"] if ended is None else ended
        call.verdict, call.counts_as = CallVerdict(record["outcome"]), record["verdict"]
        call.workspace = call.workspace or record["workspace_id"]
        call.agent, call.model = record.get("agent_id", ""), call.model or record.get("model", "")
        call.turn = record.get("turn_index", call.turn)
        call.key, call.fingerprint = record["fine_key"], record["call_digest"]
        call.service = record.get("service") or record.get("domain") or ""
        call.tool_class = ToolClass(record.get("tool_class", ToolClass.UNKNOWN))
        call.summary = record.get("summary") or call.summary
        call.severity, call.expected = record.get("severity") or "", bool(record.get("expected"))
        call.signature = record.get("signature", "")
        call.error = record.get("error_message") or record.get("error_type") or ""
        call.result, call.times = record.get("result_digest", ""), record.get("same_result", 0)
        call.cost_usd, call.attempts = record.get("cost_usd"), record.get("attempts")
        call.waited_ms = record.get("waited_ms", 0)
        measured = record.get("duration_ms")
        if not record.get("appended"):
            call.duration_ms = measured if measured is not None else float(max(0, call.ended_ms - call.started_ms))
        call.events.append(call.finish_id)
        self.ended.append(call)
        self.by_event[call.finish_id] = call

    def _waiting(self, event: PermissionRequested | PermissionResolved, session: _SessionFold) -> TimelineCall | None:
        """Call that a person is asked about; one that was denied has ended."""
        if (denied := self.by_event.get(event.id)) is not None:
            return denied
        waiting: CallRecord | None = next(
            (one for one in reversed(session.state.open_calls) if one.call_id == event.call_id), None
        )
        call = None if waiting is None else self._by_start.get(waiting.event_id)
        if waiting is not None and call is not None:
            call.verdict = CallVerdict.WAITING if waiting.waiting_since else CallVerdict.PENDING
            call.waited_ms = waiting.waited_ms
        return call


def calls_of(events: Iterable[Record], rules: RuleSet | None = None) -> list[TimelineCall]:
    """Assemble all calls from events, in the order of their start."""
    calls = CallAssembler(rules)
    for event in events:
        calls.add(event)
    return calls.made


def by_cause(values: Iterable[bytes]) -> dict[str, Record]:
    """Records of calls by the event that ended each."""
    return {record["cause"]: record for record in map(orjson.loads, values)}


def shortened(text: str, most: int) -> str:
    """A text in one line, cut to a maximum of characters with an ellipsis."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1].rstrip()}…"
