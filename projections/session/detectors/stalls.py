"""Silence, turns that take too long, calls past their deadline (docs/detection.md, Time).

The model owes a sign of life while a turn is open, no call is, and no person is asked; but only where the publisher is
known to end its turns. Otherwise an open turn means nothing: the session, or the recording of it, may just be over.

A call is overdue at the deadline that its publisher stated, and is closed then; without one it is overdue after
`calls.overdue_after_ms` and stays open. The time in which it waits for a person never counts. Where turns are
published, a call without a stated deadline is reported only if their ends are, too: elsewhere most of them were just
left open.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....rules.rules import BehaviourRules
from ....schemas import events as ev
from ....schemas.vocabulary import Pattern, Status
from ...calls.errors import neutral_reason
from ..appended import is_our_finish
from ..context import Context, Sighting
from ..records import ActivePattern, OpenCall
from .detector import Detector, Finished
from .monologue import Monologue

MAX_OVERDUE = 16

_SILENCE = 0
_DURATION = 1
"""Fingerprints of the two kinds of stalled turn."""


class OverdueCall(msgspec.Struct, array_like=True):
    """A call that is past its deadline and whose real finish may still come.

    Attributes:
        started_ms: when it started, milliseconds; later by the time it waited for a person.
        multiple: multiples of its deadline told so far.
    """

    call_id: str
    event_id: str
    tool_name: str
    fingerprint: int
    started_ms: int
    deadline_ms: int
    multiple: int = 0
    agent_id: str = ""


class StalledCall(Detector, array_like=True):
    """Follows calls that are past their deadline, until they finish or the model moves on.

    Attributes:
        overdue: the latest of these calls.
        cut_off_at: calls begun before this time (milliseconds) were cut off: the user spoke, a turn began or ended.
    """

    pattern = Pattern.STALLED_CALL
    ends_with = "the finish of the call, or the model moving on"
    texts = (
        "{tool_name} has not answered for {seconds} seconds and is past its deadline. Consider going on without it.",
        "NOTICE: {tool_name} has not answered for {seconds} seconds. Do not wait for it; check its state or use another way.",
        "PAUSED: {tool_name} has not answered for {seconds} seconds. The session waits for the user.",
    )
    of_session = True
    reported = 9
    wants_action = True

    overdue: list[OverdueCall] = []
    cut_off_at: int = 0

    def is_over(self, active: ActivePattern, ctx: Context) -> bool:
        """When nobody waits for the call any more."""
        del ctx
        return all(late.fingerprint != active.fingerprint for late in self.overdue)

    def on_failure(self, done: Finished, ctx: Context) -> None:
        """A call that was closed at its deadline is overdue."""
        if is_our_finish(done.event):
            self.on_overdue(done.call, ctx)

    def on_overdue(self, call: OpenCall, ctx: Context) -> None:
        """Wait for the real finish of the call, unless the model has moved on."""
        state = ctx.state
        moved_on = state.steps.number > call.step or state.detector(Monologue).spoken
        if call.started_ms < self.cut_off_at or moved_on:
            return
        if state.turn.open and not (call.deadline_stated or state.turn.ends_published):
            return
        late = OverdueCall(
            call.call_id, call.event_id, call.tool_name, call.fingerprint, call.started_ms + call.waited_ms,
            call.deadline_ms, multiple=1, agent_id=call.agent_id,
        )  # fmt: skip
        self.overdue.append(late)
        del self.overdue[:-MAX_OVERDUE]
        self._report(late, ctx)

    def arrived(self, call_id: str) -> OverdueCall | None:
        """The overdue call of an id, which nobody waits for any more: it has finished, or a person is asked about it."""
        waited_for = next((late for late in self.overdue if late.call_id == call_id), None)
        if waited_for is not None:
            self.overdue = [late for late in self.overdue if late.call_id != call_id]
        return waited_for

    def moved_on(self, agent_id: str) -> None:
        """An agent acts or speaks: it does not wait for its overdue calls any more."""
        self.overdue = [late for late in self.overdue if late.agent_id != agent_id]

    def due(self, ctx: Context) -> int:
        """At the next multiple of a deadline."""
        if not self.overdue:
            return 0
        rules = ctx.rules.behaviour
        return min((due for late in self.overdue if (due := _call_due(late, rules))), default=0)

    def on_due(self, ctx: Context) -> None:
        """Report the calls that have reached a further multiple of their deadlines."""
        rules = ctx.rules.behaviour
        for late in self.overdue:
            if 0 < _call_due(late, rules) <= ctx.emit.at:
                late.multiple = rules.stalled_call.rung_after(late.multiple)
                self._report(late, ctx)

    def on_turn_start(self, ctx: Context) -> None:
        """Whatever began before was cut off."""
        self._cut_off(ctx.emit.at)

    def on_turn_over(self, ctx: Context, *, ended: bool) -> None:
        """Whatever began in the turn was cut off by its end."""
        if ended:
            self._cut_off(ctx.emit.at + 1)

    def on_user(self, ctx: Context) -> None:
        """Whatever began before was cut off."""
        self._cut_off(ctx.emit.at)

    def _cut_off(self, at: int) -> None:
        self.cut_off_at = at
        self.overdue = []

    def _report(self, late: OverdueCall, ctx: Context) -> None:
        severity = ctx.rules.behaviour.stalled_call.step(late.multiple)
        if severity:
            seen = Sighting(
                self.pattern, severity, late.fingerprint, late.multiple, [late.tool_name],
                [late.event_id, ctx.emit.cause], "stop waiting for the call", since_ms=late.started_ms,
                agent_id=late.agent_id,
            )  # fmt: skip
            ctx.sightings.append(seen)


class StalledTurn(Detector, array_like=True):
    """Watches the open turn: how long it has been silent, and how long it has lasted.

    Attributes:
        last_sign: latest event of the conversation.
        silent_since: since when the model owes a sign of life, milliseconds; 0 it owes none.
        silence_told: multiples of the longest silence told so far.
        duration_told: multiples of the longest turn told so far.
    """

    pattern = Pattern.STALLED_TURN
    ends_with = "any sign of life"
    texts = (
        "Nothing has come for {seconds} seconds in this turn. Please go on, or end the turn.",
        "NOTICE: This turn has stood still for {seconds} seconds. Take the next step NOW, or end the turn.",
        "PAUSED: This turn has stood still for {seconds} seconds. The session waits for the user.",
    )
    of_session = True
    reported = 8
    wants_action = True

    last_sign: str = ""
    silent_since: int = 0
    silence_told: int = 0
    duration_told: int = 0

    def is_over(self, active: ActivePattern, ctx: Context) -> bool:
        """After any sign of life, or with the turn."""
        del ctx
        return not (self.silence_told if active.fingerprint == _SILENCE else self.duration_told)

    def signed(self, event: ev.Event, ctx: Context, *, waits: Sequence[object]) -> None:
        """The conversation goes on, and the model owes another sign of life, unless it `waits` for a call or a person."""
        self.last_sign = event.id
        turn = ctx.state.turn
        owes = not waits and turn.ends_published and turn.open
        if owes and isinstance(event, ev.ToolCallFinished):
            owes = _was_answered(event)
        elif owes and isinstance(event, ev.PermissionResolved):
            owes = event.granted
        self.silent_since = ctx.emit.at if owes else 0

    def due(self, ctx: Context) -> int:
        """At the next multiple of the longest silence, or of the longest turn."""
        rules = ctx.rules.behaviour
        silence = self._silence_due(rules) if self.silent_since else 0
        if rules.max_turn_duration_seconds is None:
            return silence
        duration = self._duration_due(ctx.state.turn.since_ms, rules)
        return min(silence, duration) if silence and duration else silence or duration

    def on_due(self, ctx: Context) -> None:
        """Report a silence, and a turn, that have reached a further multiple."""
        rules, turn, at = ctx.rules.behaviour, ctx.state.turn, ctx.emit.at
        if 0 < self._silence_due(rules) <= at:
            self.silence_told = rules.stalled_turn.rung_after(self.silence_told)
            self._report(_SILENCE, self.silence_told, ctx)
        if 0 < self._duration_due(turn.since_ms, rules) <= at:
            self.duration_told = rules.stalled_turn.rung_after(self.duration_told)
            self._report(_DURATION, self.duration_told, ctx)

    def on_turn_start(self, ctx: Context) -> None:
        """Measure the new turn."""
        del ctx
        self.duration_told = 0

    def on_turn_over(self, ctx: Context, *, ended: bool) -> None:
        """No turn is measured any more."""
        del ctx
        if ended:
            self.duration_told = 0

    def _silence_due(self, rules: BehaviourRules) -> int:
        multiple = rules.stalled_turn.rung_after(self.silence_told)
        if not self.silent_since or not multiple:
            return 0
        return self.silent_since + int(rules.max_silence_seconds * 1000) * multiple

    def _duration_due(self, since: int, rules: BehaviourRules) -> int:
        limit = rules.max_turn_duration_seconds
        multiple = rules.stalled_turn.rung_after(self.duration_told)
        if limit is None or not since or not multiple:
            return 0
        return since + int(limit * 1000) * multiple

    def _report(self, kind: int, multiple: int, ctx: Context) -> None:
        severity, turn = ctx.rules.behaviour.stalled_turn.step(multiple), ctx.state.turn
        if severity:
            since, begun = (self.silent_since, self.last_sign) if kind == _SILENCE else (turn.since_ms, turn.event_id)
            seen = Sighting(
                self.pattern, severity, kind, multiple, [done.tool_name for done in ctx.state.steps.window[-1:]],
                [begun, ctx.emit.cause], "go on, or end the turn", since_ms=since,
            )  # fmt: skip
            ctx.sightings.append(seen)


def _was_answered(event: ev.ToolCallFinished) -> bool:
    """Whether the model has got a result to go on with.

    After a refusal or an interruption the word is with the user; a call that we closed may still be out there.
    """
    error = event.error
    if error is not None and error.type and neutral_reason(error.type):
        return False
    return event.status is not Status.CANCELLED and not is_our_finish(event)


def _call_due(late: OverdueCall, rules: BehaviourRules) -> int:
    multiple = rules.stalled_call.rung_after(late.multiple)
    return late.started_ms + (late.deadline_ms - late.started_ms) * multiple if multiple else 0
