"""Events that trustfold itself appends to the log: finishes of calls that have none, and passed times.

A due event is appended with its due time, whether the session's next event or a tick triggers it. Its id, from which
the ids of the outputs derive, is computed from the call's start, or from the session and the due time
(docs/decisions/0011-time-passes-in-the-log.md).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...schemas.envelope import output_id
from ...schemas.events import Event, TimePassed, ToolCallFinished, epoch_ms
from ...schemas.vocabulary import CallStatus
from .records import CallRecord, EventContext

_FINISHED = "tool_call.finished"
_PASSED = "time.passed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_APPENDED_STATUS = frozenset({CallStatus.TIMEOUT, CallStatus.LOST})


def finish_id(started_id: str) -> str:
    """Id of the finish appended for a call, derived from the id of its start."""
    return output_id(started_id, _FINISHED, 0)


def is_appended(event: Event) -> bool:
    """Whether trustfold appended this event: a finish that names its start, or a timer event; by its id.

    When such a finish is read back, however late, it closes exactly that call, or nothing if it is already closed.
    """
    if isinstance(event, ToolCallFinished):
        started = event.correlation_id
        return started is not None and event.status in _APPENDED_STATUS and event.id == finish_id(started)
    return isinstance(event, TimePassed) and event.id == _timer_id(event.session_id, epoch_ms(event.time))


def append_finishes(ctx: EventContext, now: int) -> list[ToolCallFinished]:
    """Append the finish of every call that has timed out or is lost by `now` (milliseconds), by due time."""
    due = sorted(
        (call for call in ctx.state.open_calls if call.ends_when_due and call.due_ms <= now),
        key=lambda call: (call.due_ms, call.event_id),
    )
    return [_append_finish(ctx, call, call.due_ms) for call in due]


def append_lost(ctx: EventContext) -> list[ToolCallFinished]:
    """Append a finish with status `lost` for every open call, as the session has ended."""
    at = ctx.emit.at
    return [_append_finish(ctx, call, at, lost=True) for call in ctx.state.open_calls]


def _append_finish(ctx: EventContext, call: CallRecord, at: int, *, lost: bool = False) -> ToolCallFinished:
    state = ctx.state
    timed_out = call.deadline_stated and not (lost or call.waiting_since)
    event = ToolCallFinished(
        schema_version="1.0",
        id=finish_id(call.event_id),
        time=_EPOCH + timedelta(milliseconds=at),
        session_id=ctx.session_id,
        correlation_id=call.event_id,
        workspace_id=state.workspace_id or None,
        user_id=state.user_id or None,
        agent_id=call.agent_id or None,
        model=state.model or None,
        turn_index=state.turn.index if state.turn.known else None,
        call_id=call.call_id,
        tool_name=call.tool_name,
        plugin_name=call.plugin_name or None,
        status=CallStatus.TIMEOUT if timed_out else CallStatus.LOST,
        duration_ms=float(at - call.started_ms - call.waited_ms) if timed_out else None,
    )
    ctx.emit.begin(event.id, at)
    ctx.emit.record("events", ctx.session_id, event, event.id, own_partition=True)
    return event


def append_timer_event(ctx: EventContext, now: int) -> TimePassed | None:
    """Append a `TimePassed` if the next stall or overdue call is due by `now` (milliseconds); else None."""
    state = ctx.state
    overdue_at = min((call.deadline_ms for call in state.open_calls if not call.ends_when_due), default=0)
    due = min(filter(None, (state.stall_due, overdue_at)), default=0)
    if not due or due > now:
        return None
    event = TimePassed(
        schema_version="1.0",
        id=_timer_id(ctx.session_id, due),
        time=_EPOCH + timedelta(milliseconds=due),
        session_id=ctx.session_id,
        workspace_id=state.workspace_id or None,
    )
    ctx.emit.begin(event.id, due)
    ctx.emit.record("events", ctx.session_id, event, event.id, own_partition=True)
    return event


def _timer_id(session_id: str, due: int) -> str:
    return output_id(f"{session_id}@{due}", _PASSED, 0)
