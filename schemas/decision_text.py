"""Renders decisions as text: what changed and why, for terminals and web pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from .decisions import (
    BreakerChanged,
    BreakerProbeDenied,
    BreakerProbeGranted,
    ConfidenceLow,
    DeadLetter,
    Decision,
    GuaranteeFields,
    GuaranteeViolated,
    GuaranteeWarned,
    ModelSwitchSuggested,
    NudgeIssued,
    NudgeJudged,
    NudgeWithdrawn,
    PatternCleared,
    PatternDetected,
    ProbeAnswerBase,
    SessionRestored,
    TrustChanged,
    TrustDangerNoted,
    TrustFields,
    TrustRecoveryPending,
    readable_decision,
)
from .public_state import (
    BreakerUpdated,
    DecisionBase,
    IncidentUpdated,
    ModelUpdated,
    PublicState,
    QualityUpdated,
    StateUpdated,
    TrustUpdated,
)
from .vocabulary import BreakerMode, BreakerState, NudgeType, TrustState


class TextTone(StrEnum):
    """Tone of a text: which kind of news it is; terminals and pages each choose how to show it."""

    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    QUIET = "quiet"


class DecisionLine(NamedTuple):
    """Decision rendered as text.

    Attributes:
        mark: one character for the kind of news.
        what: what changed.
        why: reason, at most one sentence.
        tone: tone of the news.
    """

    mark: str
    what: str
    why: str
    tone: TextTone


_TRUST_LOOK = {
    TrustState.TRUSTED: ("✓", TextTone.GOOD),
    TrustState.RECOVERING: ("↻", TextTone.WARN),
    TrustState.ESCALATED: ("!", TextTone.WARN),
    TrustState.BLOCKED: ("✕", TextTone.BAD),
    TrustState.REMOVED: ("✕", TextTone.BAD),
}
_CIRCUIT_LOOK = {
    BreakerState.CLOSED: ("✓", TextTone.GOOD),
    BreakerState.HALF_OPEN: ("↻", TextTone.WARN),
    BreakerState.OPEN: ("!", TextTone.BAD),
    BreakerState.FORCED_OPEN: ("!", TextTone.BAD),
}
_NUDGE_TONE = {NudgeType.GENTLE: TextTone.QUIET, NudgeType.DIRECT: TextTone.WARN, NudgeType.INTERRUPT: TextTone.BAD}


def line_of(decision: Decision | DecisionBase) -> DecisionLine:
    """Render a decision."""
    make = _LINES.get(type(decision))
    return (
        DecisionLine("·", str(decision.__struct_config__.tag), "", TextTone.QUIET) if make is None else make(decision)
    )


def line_of_record(record: Mapping[str, Any]) -> DecisionLine:
    """Render a decision in its wire form, also one that a later version wrote in a form unknown here."""
    decision = readable_decision(record)
    return line_of_unreadable(record) if decision is None else line_of(decision)


def line_of_unreadable(record: Mapping[str, Any]) -> DecisionLine:
    """Render a record of an output topic that this version cannot read as a decision: its type, key and reason."""
    key = record.get("key") or record.get("breaker_key")
    what = f"{record.get('type')} of {key}" if key else str(record.get("type"))
    return DecisionLine("·", what, str(record.get("reason") or record.get("message") or ""), TextTone.QUIET)


def plain(word: str) -> str:
    """Return a wire word in plain spelling: `half_open` as `half-open`, `error_retry_loop` as `error retry loop`."""
    return "half-open" if word == "half_open" else word.replace("_", " ")


def times(count: int) -> str:
    """Return a count of times: `once`, `twice`, `5 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: `1 circuit`, `1,200 circuits`; `many` if the plural is irregular."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _trust(decision: TrustFields | TrustDangerNoted) -> DecisionLine:
    if isinstance(decision, TrustRecoveryPending):
        return DecisionLine("?", f"{decision.key} waits for your approval", decision.reason, TextTone.WARN)
    if isinstance(decision, TrustDangerNoted):
        return DecisionLine("!", decision.key, decision.reason, TextTone.QUIET if decision.silent else TextTone.WARN)
    mark, tone = _TRUST_LOOK[decision.to]
    word = "trusted again" if decision.to is TrustState.TRUSTED else decision.to
    where = f" for {decision.user_id} everywhere" if decision.scope == "user" else ""
    return DecisionLine(mark, f"{decision.key} {word}{where}", decision.reason, tone)


def _circuit(decision: BreakerChanged) -> DecisionLine:
    mark, tone = _CIRCUIT_LOOK[decision.to]
    return DecisionLine(mark, f"{decision.breaker_key} circuit {plain(decision.to)}", circuit_reason(decision), tone)


def circuit_reason(decision: BreakerChanged) -> str:
    """Return the reason of a circuit's transition in words."""
    return _transition_reason(
        decision.trigger,
        decision.consecutive_failures,
        decision.failure_rate,
        decision.measured,
        ordered=bool(decision.caused_by),
    )


def _transition_reason(
    trigger: str, consecutive: int | None, failure_rate: float | None, measured: int | None, *, ordered: bool
) -> str:
    words = {
        "consecutive": f"{consecutive} failures in a row",
        "rate": f"{round((failure_rate or 0) * (measured or 0))} of the last {measured or 0} calls failed",
        "slow_rate": "too many slow calls",
        "cooldown_over": "one probe may test it",
        "probes_succeeded": "the probes succeeded",
        "probe_failed": "the probe failed",
        "probe_lost": "the probe did not come back",
        "force_open": "opened by an operator",
        "reset": "closed by an operator" if ordered else "the time it was to be held open is over",
        "disable": "switched off by an operator",
    }
    return words.get(trigger, plain(trigger))


def _probe(decision: ProbeAnswerBase) -> DecisionLine:
    word = "granted" if isinstance(decision, BreakerProbeGranted) else "denied"
    return DecisionLine("·", f"{decision.breaker_key} probe {word}", f"to {decision.holder}", TextTone.QUIET)


def _detected(decision: PatternDetected) -> DecisionLine:
    calls = repeated_calls(decision)
    seen = f"{times(decision.repetitions)}{': ' if calls else ''}{calls}"
    return DecisionLine("∞", f"{plain(decision.pattern)} ({decision.severity})", seen, TextTone.WARN)


def repeated_calls(decision: PatternDetected) -> str:
    """Name what a pattern repeats: its tools and the latest request; empty for a pattern of texts."""
    tools = ", ".join(dict.fromkeys(decision.tool_sequence))
    request = f"`{decision.request}`" if decision.request else ""
    return f"{tools} {request}".strip()


def _cleared(decision: PatternCleared) -> DecisionLine:
    return DecisionLine(
        "✓", f"{plain(decision.pattern)} is over", f"after {times(decision.repetitions)}", TextTone.GOOD
    )


def _nudge(decision: NudgeIssued | NudgeJudged | NudgeWithdrawn) -> DecisionLine:
    if isinstance(decision, NudgeWithdrawn):
        return DecisionLine("·", "the nudge never reached the model", "", TextTone.QUIET)
    if isinstance(decision, NudgeJudged):
        return DecisionLine(
            "·", "the nudge helped" if decision.effective else "the nudge was ignored", "", TextTone.QUIET
        )
    return DecisionLine("→", f"{decision.nudge_type} nudge", decision.message, _NUDGE_TONE[decision.nudge_type])


def _guarantee(decision: GuaranteeFields) -> DecisionLine:
    beyond = isinstance(decision, GuaranteeViolated)
    what = f"{plain(decision.guarantee)} {'exceeded' if beyond else 'nearly spent'}"
    return DecisionLine(
        "!", what, f"{decision.used:g} of {decision.limit:g}", TextTone.BAD if beyond else TextTone.WARN
    )


def _restored(decision: SessionRestored) -> DecisionLine:
    kept = [
        "" if decision.turn_index is None else f"turn {decision.turn_index}",
        _many(decision.active_patterns, "active pattern"),
        _many(decision.pending_nudges, "pending nudge"),
        "its settings" if decision.settings_restored else "",
    ]
    return DecisionLine("·", "session restored", ", ".join(filter(None, kept)), TextTone.QUIET)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}" if count else ""


def _advice(decision: ModelSwitchSuggested | ConfidenceLow) -> DecisionLine:
    what = "confidence low" if isinstance(decision, ConfidenceLow) else "model switch suggested"
    return DecisionLine("→", what, decision.message or "", TextTone.WARN)


def _state(state: PublicState) -> DecisionLine:
    match state:
        case QualityUpdated():
            why = f"{state.score or 0:.2f} of {state.registered_score or 0:.2f}"
        case ModelUpdated(turns=int(turns)):
            why = f"{state.stalled_turns or 0} of {turns} turns stalled"
        case ModelUpdated():
            why = f"{state.model or 'all models'}: {state.attempts or 0} calls"
        case IncidentUpdated():
            why = f"acknowledged by {state.acknowledged_by or 'somebody'}"
        case _:
            why = plain(state.state)
    return DecisionLine("·", f"{state.kind} state of {state.key}", why, TextTone.QUIET)


def _dead_letter(letter: DeadLetter) -> DecisionLine:
    return DecisionLine("✕", f"dead letter ({letter.reason})", f"{letter.path}: {letter.message}", TextTone.BAD)


_LINES: dict[type, Callable[[Any], DecisionLine]] = {
    TrustChanged: _trust,
    TrustRecoveryPending: _trust,
    TrustDangerNoted: _trust,
    BreakerChanged: _circuit,
    BreakerProbeGranted: _probe,
    BreakerProbeDenied: _probe,
    PatternDetected: _detected,
    PatternCleared: _cleared,
    NudgeIssued: _nudge,
    NudgeJudged: _nudge,
    NudgeWithdrawn: _nudge,
    SessionRestored: _restored,
    GuaranteeWarned: _guarantee,
    GuaranteeViolated: _guarantee,
    ModelSwitchSuggested: _advice,
    ConfidenceLow: _advice,
    TrustUpdated: _state,
    BreakerUpdated: _state,
    QualityUpdated: _state,
    ModelUpdated: _state,
    IncidentUpdated: _state,
    DeadLetter: _dead_letter,
}


def recovery_words(state: TrustUpdated, now: datetime) -> str:
    """Describe how trust can be restored from this state."""
    match state.state:
        case TrustState.BLOCKED:
            return "manual reset required"
        case TrustState.REMOVED:
            return "removed by an operator"
        case TrustState.RECOVERING if state.recovery_pending:
            return "waits for `trustfold recover`"
        case TrustState.RECOVERING:
            return f"{state.successes or 0}/{state.successes_needed or 0} successes"
        case TrustState.ESCALATED if state.scope == "user":
            left = time_left(state.expires_at, now)
            return f"ends in {left}" if left else "is over"
        case TrustState.ESCALATED:
            left = time_left(state.recovery_at, now)
            return f"cooldown: {left} remaining" if left else "the next success starts recovery"
    return ""


def circuit_word(state: BreakerUpdated, now: datetime) -> str:
    """Return a circuit's state at a time: an open one is half-open after `open_until`."""
    if state.state is BreakerState.OPEN and not time_left(state.open_until, now):
        return "half-open"
    return "half-open" if state.state is BreakerState.HALF_OPEN else str(state.state)


def circuit_state_reason(state: BreakerUpdated) -> str:
    """Return the reason of a circuit's state."""
    return _transition_reason(
        state.reason or "", state.consecutive, state.failure_rate, state.measured, ordered=bool(state.caused_by)
    )


def circuit_next(state: BreakerUpdated, now: datetime) -> str:
    """Describe the next transition of a circuit: how long it stays open, or who probes it."""
    if state.mode is BreakerMode.OBSERVE:
        return "observed only: blocks nothing"
    if state.mode is BreakerMode.DISABLED:
        return "switched off"
    if state.lease:
        return f"probe by {state.lease.holder} under way"
    word, left = circuit_word(state, now), time_left(state.open_until, now)
    if word == "forced_open":
        return f"held open for {left}" if left else "held open until closed by command"
    if word == "half-open":
        return f"{state.successes} probes succeeded, one more may go" if state.successes else "one probe may go"
    return f"a probe in {left}" if left else ""


def measured_failures(state: BreakerUpdated) -> str:
    """Return the failed of the measured calls of a circuit: `3/10`; empty without measured calls."""
    return f"{round((state.failure_rate or 0) * state.measured)}/{state.measured}" if state.measured else ""


def place_of(state: StateUpdated) -> str:
    """Return where a state applies: a workspace, or one user in all workspaces."""
    return f"user {state.user_id}" if state.scope == "user" else state.workspace_id or ""


def failures_words(state: TrustUpdated) -> str:
    """Return the failures beside their threshold: `5/3`, or a rate as `41%`; `-` without failures."""
    if state.failures is None:
        return "-" if state.failure_rate is None else f"{state.failure_rate:.0%}"
    count = f"{state.failures:.3g}"
    return f"{count}/{state.threshold:.3g}" if state.threshold is not None else count


def time_left(until: str | None, now: datetime) -> str:
    """Return the time until a moment in words; empty if it has passed."""
    if not until:
        return ""
    seconds = (datetime.fromisoformat(until) - now).total_seconds()
    if seconds <= 0:
        return ""
    if seconds < 90:
        return f"{max(1, round(seconds))}s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m"
