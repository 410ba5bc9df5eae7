"""Checks of a replay: what a guard would have done with each recorded call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from ..errors import EventRejected
from ..guard.policy import CheckDecision, check_recorded
from ..guard.request import GuardedCall, recorded_call
from ..guard.state_cache import StateView
from ..history.whatif.guard_replay import StoppedCall
from ..projections.emitter import StageOutput
from ..projections.local_topology import LocalTopology
from ..projections.processor import CLOCK_TOLERANCE_MS
from ..projections.session.calls import args_of
from ..projections.session.records import CallRecord
from ..schemas.codec import decode_event, encode, rfc3339
from ..schemas.decision_text import DecisionLine, TextTone, counted
from ..schemas.events import ToolCallStarted, epoch_ms
from ..schemas.outcomes import DEFAULT_WORKSPACE

CHECKS = "checks"  # Topic name of the outputs that are checks; no broker has it

# A session clock further ahead of all others is ignored until another session's clock reaches it too
MAX_JUMP_MS = 30 * 86_400_000


class GuardVerdict(StrEnum):
    """Result of a guard's check of a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    CIRCUIT_OPEN = "circuit_open"


class CallCheck(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="check"):
    """Decision that a guard would have taken about one call."""

    session_id: str
    call_id: str
    tool_name: str
    decision: GuardVerdict
    key: str  # trust key or circuit that decided; for an allowed call, the call's own key
    reason: str  # why, as text; empty for an allowed call
    time: str  # when the call started


def verdict_of(decision: CheckDecision) -> GuardVerdict:
    """Verdict that corresponds to a guard's decision."""
    if decision.ask:
        return GuardVerdict.ASK
    if decision.allowed:
        return GuardVerdict.ALLOW
    return GuardVerdict.CIRCUIT_OPEN if decision.code == "circuit_open" else GuardVerdict.DENY


class CallChecker:
    """Feeds a topology, tracks its states like a guard, and checks each call before its start is folded."""

    def __init__(self, topology: LocalTopology) -> None:
        """Check the calls of all records fed to `topology`."""
        self.view = StateView()  # the states that a guard would have received so far
        self._topology = topology
        self._reached = 0
        self._ahead = ""

    def feed(self, topic: str, values: Iterable[bytes], *, timestamp: int = -1) -> list[StageOutput]:
        """Fold records as `LocalTopology.feed` does, and put a check before the decisions of each call's start."""
        left: list[StageOutput] = []
        for value in values:
            started = _started(value) if topic == "events" and b'"tool_call.started"' in value else None
            if started is None:
                left += self.follow(self._topology.feed(topic, (value,), timestamp=timestamp))
                continue
            at = epoch_ms(started.time)
            if timestamp > 0:
                at = min(at, timestamp + CLOCK_TOLERANCE_MS)
            left += self.catch_up(at, started.session_id)
            check, known = self.check(started, at), self._is_latest(started)
            caused = self.follow(self._topology.feed(topic, (value,), timestamp=timestamp))
            if self._is_latest(started) and not known:
                output = StageOutput(CHECKS, started.session_id, encode(check), "", "check", at)
                left.append(output)
            left += caused
        return left

    def catch_up(self, at: int, session: str) -> list[StageOutput]:
        """Apply the timers that are due before a time of a session's clock; returns their outputs."""
        if self._reached and at > self._reached + MAX_JUMP_MS and self._ahead in {"", session}:
            self._ahead = session
            return []
        self._ahead = ""
        self._reached = max(self._reached, at)
        due = self._topology.next_due()
        return self.follow(self._topology.tick(at)) if due is not None and due <= at else []

    def check(self, event: ToolCallStarted, at: int | None = None) -> CallCheck:
        """Check the call that an event starts, as a guard would; `at` is the event's effective time."""
        at = epoch_ms(event.time) if at is None else at
        decision, key = check_recorded(self.view, self.call_of(event), at)
        return CallCheck(
            session_id=event.session_id,
            call_id=event.call_id,
            tool_name=event.tool_name,
            decision=verdict_of(decision),
            key=key,
            reason=decision.message,
            time=rfc3339(at),
        )

    def held(self, event: ToolCallStarted, at: int) -> StoppedCall | None:
        """Decision that would have stopped the call that an event starts; None if the guard would have allowed it."""
        call = self.call_of(event)
        decision, key = check_recorded(self.view, call, at)
        verdict = verdict_of(decision)
        if verdict is GuardVerdict.ALLOW:
            return None
        return StoppedCall(
            event_id=event.id,
            session=event.session_id,
            call_id=event.call_id,
            tool=event.tool_name,
            workspace=call.workspace_id,
            user=call.user_id or "",
            refused=verdict is not GuardVerdict.ASK,
            circuit=verdict is GuardVerdict.CIRCUIT_OPEN,
            key=key,
            time_ms=at,
        )

    def call_of(self, event: ToolCallStarted) -> GuardedCall:
        """The call that an event starts; workspace and user default to those of its session."""
        state = self._topology.processors["session"].state(event.session_id)
        workspace = event.workspace_id or getattr(state, "workspace_id", "") or DEFAULT_WORKSPACE
        user = event.user_id or getattr(state, "user_id", "") or None
        rules = self._topology.source.rules
        return recorded_call(event, args_of(event), workspace, user, rules.tools.families, rules.calls)

    def follow(self, outputs: list[StageOutput]) -> list[StageOutput]:
        """Apply the states among outputs to the view; returns the outputs unchanged."""
        for output in outputs:
            if output.topic == "state":
                self.view.apply(output.key, output.value)
        return outputs

    def _is_latest(self, event: ToolCallStarted) -> bool:
        """True if the call that the fold opened last in the session is the event's call."""
        state = self._topology.processors["session"].state(event.session_id)
        calls: Sequence[CallRecord] = getattr(state, "open_calls", ())
        return bool(calls) and calls[-1].event_id == event.id


def check_of(output: StageOutput) -> CallCheck:
    """Check parsed from an output."""
    return msgspec.json.decode(output.value or b"{}", type=CallCheck)


def line_of_check(check: CallCheck) -> DecisionLine:
    """Render a check."""
    mark, word, tone = _LOOK[check.decision]
    return DecisionLine(mark, f"{check.tool_name} {word}", check.reason, tone)


_LOOK = {
    GuardVerdict.ALLOW: ("·", "allowed", TextTone.QUIET),
    GuardVerdict.ASK: ("?", "would ask", TextTone.WARN),
    GuardVerdict.DENY: ("✕", "would be refused", TextTone.BAD),
    GuardVerdict.CIRCUIT_OPEN: ("✕", "would fail fast", TextTone.BAD),
}


def summary(verdicts: Counter[GuardVerdict]) -> str:
    """Summary of checks in one line: number of calls and of each verdict."""
    calls, asked = verdicts.total(), verdicts[GuardVerdict.ASK]
    share = f" ({asked / calls:.2%})".replace("%", " %") if asked else ""
    return (
        f"checks: {counted(calls, 'call')}, {asked:,} asked{share}, {verdicts[GuardVerdict.DENY]:,} refused, "
        f"{verdicts[GuardVerdict.CIRCUIT_OPEN]:,} circuit open"
    )


def _started(value: bytes) -> ToolCallStarted | None:
    try:
        event = decode_event(value)
    except EventRejected:  # the fold reports the fault
        return None
    return event if isinstance(event, ToolCallStarted) else None
