"""States in words: what a public record of a key says to people at a terminal or a page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .decision_text import circuit_reason

State = Mapping[str, Any]
"""A public record (`StateUpdated`) as it stands on the wire."""


def recovery_words(state: State, now: datetime) -> str:
    """What leads back to trust from here."""
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
    """A circuit's state for whoever reads it now: an open one is half-open once its time is over."""
    if state["state"] == "open" and not time_left(state.get("open_until"), now):
        return "half-open"
    return "half-open" if state["state"] == "half_open" else str(state["state"])


def circuit_state_reason(state: State) -> str:
    """Why a circuit is in its state."""
    return circuit_reason(
        {"trigger": str(state.get("reason") or ""), "consecutive_failures": state.get("consecutive")} | dict(state)
    )


def circuit_next(state: State, now: datetime) -> str:
    """What comes next for a circuit: how long it stays open, who probes it."""
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
    """Where a state holds: a workspace, or everywhere for one user."""
    return f"user {state['user_id']}" if state.get("scope") == "user" else str(state.get("workspace_id", ""))


def failures_words(state: State) -> str:
    """What was counted, beside its threshold: `5/3`, or `41%`; `-` where nothing was."""
    if state.get("failures") is None:
        rate = state.get("failure_rate")
        return "-" if rate is None else f"{rate:.0%}"
    threshold = state.get("threshold")
    count = f"{state['failures']:.3g}"
    return f"{count}/{threshold:.3g}" if threshold is not None else count


def time_left(until: str | None, now: datetime) -> str:
    """Time until a moment, as people say it; empty once it has passed."""
    if not until:
        return ""
    seconds = (datetime.fromisoformat(until) - now).total_seconds()
    if seconds <= 0:
        return ""
    if seconds < 90:
        return f"{max(1, round(seconds))}s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m"
