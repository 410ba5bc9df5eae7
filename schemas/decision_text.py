"""Renders decisions as text: what changed and why, for terminals and web pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from .public_state import BreakerUpdated, StateUpdated, TrustUpdated
from .vocabulary import BreakerMode, BreakerState, TrustState

Decision = Mapping[str, Any]
"""Decision in its wire form."""


class Tone(StrEnum):
    """Tone of a text: which kind of news it is; terminals and pages each choose how to show it."""

    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    QUIET = "quiet"


class Line(NamedTuple):
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
    tone: Tone


_TRUST_TONE = {
    "trusted": Tone.GOOD,
    "recovering": Tone.WARN,
    "escalated": Tone.WARN,
    "blocked": Tone.BAD,
    "removed": Tone.BAD,
}
_CIRCUIT_TONE = {"closed": Tone.GOOD, "half_open": Tone.WARN, "open": Tone.BAD, "forced_open": Tone.BAD}
_NUDGE_TONE = {"gentle": Tone.QUIET, "direct": Tone.WARN, "interrupt": Tone.BAD}


def line_of(decision: Decision) -> Line:
    """Render a decision; for an unknown type the text is its type."""
    made = _LINES.get(str(decision.get("type")))
    if made is None:
        return Line("·", str(decision.get("type")), "", Tone.QUIET)
    return made(decision)


def plain(word: str) -> str:
    """Return a wire word in plain spelling: `half_open` as `half-open`, `error_retry_loop` as `error retry loop`."""
    return "half-open" if word == "half_open" else word.replace("_", " ")


def times(count: int) -> str:
    """Return a count of times: `once`, `twice`, `5 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: `1 circuit`, `1,200 circuits`; `many` if the plural is irregular."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _trust(decision: Decision) -> Line:
    to = decision["to"]
    if decision["type"] == "trust.recovery_pending":
        return Line("?", f"{decision['key']} waits for your approval", decision["reason"], Tone.WARN)
    word = "trusted again" if to == "trusted" else to
    mark = {"trusted": "✓", "blocked": "✕", "removed": "✕", "recovering": "↻"}.get(to, "!")
    where = f" for {decision['user_id']} everywhere" if decision["scope"] == "user" else ""
    return Line(mark, f"{decision['key']} {word}{where}", decision["reason"], _TRUST_TONE.get(to, Tone.WARN))


def _circuit(decision: Decision) -> Line:
    to = decision["to"]
    mark = {"closed": "✓", "half_open": "↻"}.get(to, "!")
    return Line(mark, f"{decision['breaker_key']} circuit {plain(to)}", circuit_reason(decision), _CIRCUIT_TONE[to])


def circuit_reason(decision: Decision) -> str:
    """Return the reason of a circuit's transition in words."""
    return _transition_reason(
        decision["trigger"],
        decision.get("consecutive_failures"),
        decision.get("failure_rate"),
        decision.get("measured"),
        ordered=bool(decision.get("caused_by")),
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


def _probe(decision: Decision) -> Line:
    granted = decision["type"] == "breaker.probe_granted"
    word = "probe granted" if granted else "probe denied"
    return Line("·", f"{decision['breaker_key']} {word}", f"to {decision['holder']}", Tone.QUIET)


def _detected(decision: Decision) -> Line:
    tools = list(dict.fromkeys(decision.get("tool_sequence") or ()))
    seen = f"{times(decision['repetitions'])}{': ' if tools else ''}{', '.join(tools)}"
    return Line("∞", f"{plain(decision['pattern'])} ({decision['severity']})", seen, Tone.WARN)


def _cleared(decision: Decision) -> Line:
    return Line("✓", f"{plain(decision['pattern'])} is over", f"after {times(decision['repetitions'])}", Tone.GOOD)


def _nudge(decision: Decision) -> Line:
    kind = decision["nudge_type"]
    return Line("→", f"{kind} nudge", decision["message"], _NUDGE_TONE.get(kind, Tone.WARN))


def _judged(decision: Decision) -> Line:
    return Line("·", "the nudge helped" if decision["effective"] else "the nudge was ignored", "", Tone.QUIET)


def _guarantee(decision: Decision) -> Line:
    beyond = decision["type"] == "guarantee.violated"
    what = f"{plain(decision['guarantee'])} {'exceeded' if beyond else 'nearly spent'}"
    return Line("!", what, f"{decision['used']:g} of {decision['limit']:g}", Tone.BAD if beyond else Tone.WARN)


def _message(decision: Decision) -> Line:
    return Line("→", plain(str(decision["type"]).replace(".", " ")), decision.get("message") or "", Tone.WARN)


def _state(decision: Decision) -> Line:
    kind = decision["kind"]
    if kind == "quality":
        why = f"{decision['score']:.2f} of {decision['registered_score']:.2f}"
    elif kind == "model" and decision.get("turns") is not None:
        why = f"{decision.get('stalled_turns') or 0} of {decision['turns']} turns stalled"
    elif kind == "model":
        why = f"{decision.get('model') or 'all models'}: {decision.get('attempts') or 0} calls"
    else:
        why = plain(decision["state"])
    return Line("·", f"{kind} state of {decision['key']}", why, Tone.QUIET)


def _check(decision: Decision) -> Line:
    mark, word, tone = _CHECKS.get(decision["decision"], ("·", "allowed", Tone.QUIET))
    return Line(mark, f"{decision['tool_name']} {word}", decision["reason"], tone)


_CHECKS = {
    "ask": ("?", "would ask", Tone.WARN),
    "deny": ("✕", "would be refused", Tone.BAD),
    "circuit_open": ("✕", "would fail fast", Tone.BAD),
}


def _dead_letter(decision: Decision) -> Line:
    return Line("✕", f"dead letter ({decision['reason']})", f"{decision['path']}: {decision['message']}", Tone.BAD)


_LINES: dict[str, Callable[[Decision], Line]] = {
    "trust.changed": _trust,
    "trust.recovery_pending": _trust,
    "breaker.changed": _circuit,
    "breaker.probe_granted": _probe,
    "breaker.probe_denied": _probe,
    "pattern.detected": _detected,
    "pattern.cleared": _cleared,
    "nudge.issued": _nudge,
    "nudge.judged": _judged,
    "guarantee.warned": _guarantee,
    "guarantee.violated": _guarantee,
    "model_switch.suggested": _message,
    "confidence.low": _message,
    "state.updated": _state,
    "dead_letter": _dead_letter,
    "check": _check,
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
