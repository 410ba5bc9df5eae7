"""Detectors of silence, of turns that take too long and of calls past their deadline (docs/detection.md, Time).

Silence is measured while a turn is open, no call is open and no person is asked, and only where the publisher is known
to end its turns. Otherwise an open turn proves nothing: the session, or its recording, may be over.

A call is overdue at the deadline that its publisher stated, and is closed then; without one it is overdue after
`calls.overdue_after_ms` and stays open. The time in which it waits for a person never counts. Where turn starts are
published, a call without a stated deadline is reported only if turn ends are published too: otherwise most of these
calls were never finished by their publisher.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....rules.rules import BehaviourRules
from ....schemas import events as ev
from ....schemas.vocabulary import CallStatus, PatternType
from ...calls.error_words import neutral_reason
from ...calls.tool_class import asks_person, delegates
from ..appended import is_appended
from ..records import ActivePattern, CallRecord, EventContext, PatternSighting
from .detector import FinishedCall, PatternDetector
from .talk import MonologueDetector

MAX_OVERDUE = 16

_SILENCE = 0
_DURATION = 1  # Fingerprints of the two kinds of stalled turn


class OverdueCall(msgspec.Struct, array_like=True):
    """A call that is past its deadline and whose real finish may still come."""

    call_id: str
    event_id: str
    tool_name: str
    fingerprint: int
    started_ms: int  # start plus the time it waited for a person, milliseconds
    deadline_ms: int
    multiple: int = 0  # latest multiple of its deadline that was reported
    agent_id: str = ""
    stated: bool = False  # whether the publisher stated the deadline


class StalledCall(PatternDetector, array_like=True):
    """Detector of calls past their deadline, until they finish or the model moves on.

    Holds at multiples of the stated deadline, or of ten minutes (of a call that waits: thirty) of a publisher that
    ends its turns; of a deadline that nobody stated only the person is told, since many a call takes longer. Tools
    that ask a person are never overdue, nor are other agents without a stated deadline.

    Ends with the finish of the call, or the model moving on.

    Known false alarms: a sub-agent that works for longer than ten minutes; of a batch that waits for one prompt each call
    is reported.
    """

    pattern = PatternType.STALLED_CALL
    ends_with = "the finish of the call, or the model moving on"
    texts = (
        "{request} has not answered for {seconds} seconds and is past its deadline. See whether it still runs, or go on "
        "without it.",
        "{request} has not answered for {seconds} seconds. Do not wait for it any longer: check its state, use another "
        "way, or tell the user.",
    )
    notice = "{request} has not answered the agent for {seconds} seconds."
    of_session = True
    reported = 15
    wants_action = True

    overdue: list[OverdueCall] = []  # the latest of these calls
    # calls begun before this time (milliseconds) were cut off: the user spoke, a turn began or ended
    ignored_before: int = 0

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the call is no longer tracked."""
        del ctx
        return all(late.fingerprint != active.fingerprint for late in self.overdue)

    def on_failure(self, done: FinishedCall, ctx: EventContext) -> None:
        """Track a call that an appended finish has closed at its deadline."""
        if is_appended(done.event):
            self.on_overdue(done.call, ctx)

    def on_overdue(self, call: CallRecord, ctx: EventContext) -> None:
        """Track the call until its real finish, unless the model has moved on."""
        state = ctx.state
        moved_on = state.steps.number > call.step or state.detector(MonologueDetector).spoken
        takes_time = asks_person(call.tool_name) or (delegates(call.tool_name) and not call.deadline_stated)
        if call.started_ms < self.ignored_before or moved_on or takes_time:
            return
        if state.turn.open and not (call.deadline_stated or state.turn.ends_published):
            return
        late = OverdueCall(
            call.call_id, call.event_id, call.tool_name, call.fingerprint, call.started_ms + call.waited_ms,
            call.deadline_ms, multiple=1, agent_id=call.agent_id, stated=call.deadline_stated,
        )  # fmt: skip
        self.overdue.append(late)
        del self.overdue[:-MAX_OVERDUE]
        self._report(late, ctx)

    def stop_tracking(self, call_id: str) -> OverdueCall | None:
        """Stop tracking the call of an id, as it has finished or waits for a person; returns it, or None if unknown."""
        waited_for = next((late for late in self.overdue if late.call_id == call_id), None)
        if waited_for is not None:
            self.overdue = [late for late in self.overdue if late.call_id != call_id]
        return waited_for

    def stop_tracking_agent(self, agent_id: str) -> None:
        """Stop tracking the overdue calls of an agent that calls a tool or writes a message."""
        self.overdue = [late for late in self.overdue if late.agent_id != agent_id]

    def due(self, ctx: EventContext) -> int:
        """Time of the next multiple of a deadline, milliseconds; 0 never."""
        if not self.overdue:
            return 0
        rules = ctx.rules.behaviour
        return min((due for late in self.overdue if (due := _call_due(late, rules))), default=0)

    def on_due(self, ctx: EventContext) -> None:
        """Report the calls that have reached a further multiple of their deadlines."""
        rules = ctx.rules.behaviour
        for late in self.overdue:
            if 0 < _call_due(late, rules) <= ctx.emit.at:
                late.multiple = rules.stalled_call.rung_after(late.multiple)
                self._report(late, ctx)

    def on_turn_start(self, ctx: EventContext) -> None:
        """Cut off all calls begun before now."""
        self._ignore_before(ctx.emit.at)

    def on_turn_over(self, ctx: EventContext, *, ended: bool) -> None:
        """Cut off all calls of the turn, if it has ended."""
        if ended:
            self._ignore_before(ctx.emit.at + 1)

    def on_user(self, ctx: EventContext) -> None:
        """Cut off all calls begun before now."""
        self._ignore_before(ctx.emit.at)

    def _ignore_before(self, at: int) -> None:
        self.ignored_before = at
        self.overdue = []

    def _report(self, late: OverdueCall, ctx: EventContext) -> None:
        severity = ctx.rules.behaviour.stalled_call.step(late.multiple)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, late.fingerprint, late.multiple, [late.tool_name],
                [late.event_id, ctx.emit.cause], "stop waiting for the call", since_ms=late.started_ms,
                agent_id=late.agent_id, for_model=late.stated, for_user=True,
            )  # fmt: skip
            ctx.sightings.append(seen)


class StalledTurn(PatternDetector, array_like=True):
    """Detector of silence in the open turn, and of turns that take too long.

    Holds at multiples of the longest allowed silence, of a publisher known to end its turns, while no call is open. A
    silent model reads nothing: the person is told, once it is severe, and the history keeps it; the model gets a nudge
    only if the rules give it a text (`nudges.texts`).

    Ends with any sign of life.

    Known false alarms: a model that thinks or writes a long file, for two to seven minutes, and a laptop that sleeps in
    the middle of a turn.
    """

    pattern = PatternType.STALLED_TURN
    ends_with = "any sign of life"
    texts = (
        "Nothing has come for {seconds} seconds in this turn. Go on, or end the turn.",
        "Nothing has come for {seconds} seconds in this turn. Take the next step, or end the turn and say what you need.",
    )
    variants = {
        "long": (
            "This turn has taken {seconds} seconds. Finish, or end the turn and say how far you are.",
            "This turn has taken {seconds} seconds. End it now and say how far you are and what is missing.",
        )
    }
    notice = "The agent has been silent for {seconds} seconds in the middle of a turn."
    notices = {"long": "A turn of the agent has taken {seconds} seconds so far."}
    of_session = True
    reported = 16
    wants_action = True

    last_sign: str = ""  # id of the latest event of the conversation
    silent_since: int = 0  # start of the measured silence, milliseconds; 0 if none is measured
    silence_reported: int = 0  # latest multiple of the longest allowed silence that was reported
    duration_reported: int = 0  # latest multiple of the longest allowed turn that was reported

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether an event of the conversation, or the end of the turn, has ended the stall."""
        del ctx
        return not (self.silence_reported if active.fingerprint == _SILENCE else self.duration_reported)

    def restart_silence(self, event: ev.Event, ctx: EventContext, *, waits: Sequence[object]) -> None:
        """Restart the measured silence at an event; `waits`: calls or questions, during which none is measured."""
        self.last_sign = event.id
        turn = ctx.state.turn
        is_models_turn = not waits and turn.ends_published and turn.open
        if is_models_turn and isinstance(event, ev.ToolCallFinished):
            is_models_turn = _was_answered(event)
        elif is_models_turn and isinstance(event, ev.PermissionResolved):
            is_models_turn = event.granted
        self.silent_since = ctx.emit.at if is_models_turn else 0

    def due(self, ctx: EventContext) -> int:
        """Time of the next multiple of the longest silence or the longest turn, milliseconds; 0 never."""
        rules = ctx.rules.behaviour
        silence = self._silence_due(rules) if self.silent_since else 0
        if rules.max_turn_duration_seconds is None:
            return silence
        duration = self._duration_due(ctx.state.turn.since_ms, rules)
        return min(silence, duration) if silence and duration else silence or duration

    def on_due(self, ctx: EventContext) -> None:
        """Report a silence, and a turn, that has reached a further multiple."""
        rules, turn, at = ctx.rules.behaviour, ctx.state.turn, ctx.emit.at
        if 0 < self._silence_due(rules) <= at:
            self.silence_reported = rules.stalled_turn.rung_after(self.silence_reported)
            self._report(_SILENCE, self.silence_reported, ctx)
        if 0 < self._duration_due(turn.since_ms, rules) <= at:
            self.duration_reported = rules.stalled_turn.rung_after(self.duration_reported)
            self._report(_DURATION, self.duration_reported, ctx)

    def on_turn_start(self, ctx: EventContext) -> None:
        """Reset the reported duration."""
        del ctx
        self.duration_reported = 0

    def on_turn_over(self, ctx: EventContext, *, ended: bool) -> None:
        """Reset the reported duration, if the turn has ended."""
        del ctx
        if ended:
            self.duration_reported = 0

    def _silence_due(self, rules: BehaviourRules) -> int:
        multiple = rules.stalled_turn.rung_after(self.silence_reported)
        if not self.silent_since or not multiple:
            return 0
        return self.silent_since + int(rules.max_silence_seconds * 1000) * multiple

    def _duration_due(self, since: int, rules: BehaviourRules) -> int:
        limit = rules.max_turn_duration_seconds
        multiple = rules.stalled_turn.rung_after(self.duration_reported)
        if limit is None or not since or not multiple:
            return 0
        return since + int(limit * 1000) * multiple

    def _report(self, kind: int, multiple: int, ctx: EventContext) -> None:
        severity, turn = ctx.rules.behaviour.stalled_turn.step(multiple), ctx.state.turn
        if severity:
            since, begun = (self.silent_since, self.last_sign) if kind == _SILENCE else (turn.since_ms, turn.event_id)
            seen = PatternSighting(
                self.pattern, severity, kind, multiple, [done.tool_name for done in list(ctx.state.steps.window)[-1:]],
                [begun, ctx.emit.cause], "go on, or end the turn", since_ms=since,
                variant="" if kind == _SILENCE else "long",
                for_model=any(key.startswith(f"{self.pattern}.") for key in ctx.rules.nudges.texts),
            )  # fmt: skip
            ctx.sightings.append(seen)


def _was_answered(event: ev.ToolCallFinished) -> bool:
    """Whether the model has received a result to continue with.

    After a refusal or an interruption the user comes next; a call closed by an appended finish may still be running.
    """
    error = event.error
    if error is not None and error.type and neutral_reason(error.type):
        return False
    return event.status is not CallStatus.CANCELLED and not is_appended(event)


def _call_due(late: OverdueCall, rules: BehaviourRules) -> int:
    multiple = rules.stalled_call.rung_after(late.multiple)
    return late.started_ms + (late.deadline_ms - late.started_ms) * multiple if multiple else 0
