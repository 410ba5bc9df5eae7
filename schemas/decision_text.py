"""Renders decisions as text: what changed and why, for terminals and web pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

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
    measured = decision.get("measured") or 0
    failed = round((decision.get("failure_rate") or 0) * measured)
    words = {
        "consecutive": f"{decision.get('consecutive_failures')} failures in a row",
        "rate": f"{failed} of the last {measured} calls failed",
        "slow_rate": "too many slow calls",
        "cooldown_over": "one probe may test it",
        "probes_succeeded": "the probes succeeded",
        "probe_failed": "the probe failed",
        "probe_lost": "the probe did not come back",
        "force_open": "opened by an operator",
        "reset": "closed by an operator" if decision.get("caused_by") else "the time it was to be held open is over",
        "disable": "switched off by an operator",
    }
    return words.get(decision["trigger"], plain(decision["trigger"]))


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


def _told(decision: Decision) -> Line:
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
    "model_switch.suggested": _told,
    "confidence.low": _told,
    "state.updated": _state,
    "dead_letter": _dead_letter,
    "check": _check,
}


State = Mapping[str, Any]
"""Public record (`StateUpdated`) in its wire form."""


def recovery_words(state: State, now: datetime) -> str:
    """Describe how trust can be restored from this state."""
    match state["state"]:
        case "blocked":
            return "manual reset required"
        case "removed":
            return "removed by an operator"
        case "recovering" if state.get("recovery_pending"):
            return "waits for `trustfold recover`"
        case "recovering":
            return f"{state.get('successes', 0)}/{state.get('successes_needed', 0)} successes"
        case "escalated" if state.get("scope") == "user":
            left = time_left(state.get("expires_at"), now)
            return f"ends in {left}" if left else "is over"
        case "escalated":
            left = time_left(state.get("recovery_at"), now)
            return f"cooldown: {left} remaining" if left else "the next success starts recovery"
    return ""


def circuit_word(state: State, now: datetime) -> str:
    """Return a circuit's state at a time: an open one is half-open after `open_until`."""
    if state["state"] == "open" and not time_left(state.get("open_until"), now):
        return "half-open"
    return "half-open" if state["state"] == "half_open" else str(state["state"])


def circuit_state_reason(state: State) -> str:
    """Return the reason of a circuit's state."""
    return circuit_reason(
        {"trigger": str(state.get("reason") or ""), "consecutive_failures": state.get("consecutive")} | dict(state)
    )


def circuit_next(state: State, now: datetime) -> str:
    """Describe the next transition of a circuit: how long it stays open, or who probes it."""
    word = circuit_word(state, now)
    mode = state.get("mode") or "enforce"
    if mode != "enforce":
        return "observed only: blocks nothing" if mode == "observe" else "switched off"
    lease = state.get("lease")
    if lease:
        return f"probe by {lease['holder']} under way"
    left = time_left(state.get("open_until"), now)
    if word == "forced_open":
        return f"held open for {left}" if left else "held open until closed by command"
    if word == "half-open":
        done = state.get("successes") or 0
        return f"{done} probes succeeded, one more may go" if done else "one probe may go"
    return f"a probe in {left}" if left else ""


def place_of(state: State) -> str:
    """Return where a state applies: a workspace, or one user in all workspaces."""
    return f"user {state['user_id']}" if state.get("scope") == "user" else str(state.get("workspace_id", ""))


def failures_words(state: State) -> str:
    """Return the failures beside their threshold: `5/3`, or a rate as `41%`; `-` without failures."""
    if state.get("failures") is None:
        rate = state.get("failure_rate")
        return "-" if rate is None else f"{rate:.0%}"
    threshold = state.get("threshold")
    count = f"{state['failures']:.3g}"
    return f"{count}/{threshold:.3g}" if threshold is not None else count


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
