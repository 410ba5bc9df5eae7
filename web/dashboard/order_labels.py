"""Orders as a page offers them: their words, and which make sense for a state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

State = Mapping[str, Any]


class OrderWords(NamedTuple):
    """How an order is offered.

    Attributes:
        label: on its button.
        effect: what it does, in a sentence.
        unmoved: what to say when it moved no state.
    """

    label: str
    effect: str
    unmoved: str


ORDERS: dict[str, OrderWords] = {
    "approve": OrderWords(
        "Approve once", "Let one call pass within the next hour; trust stays as it is.",
        "one call may pass, if nothing else is held against it",
    ),
    "recover": OrderWords("Recover", "Trust it again.", "no state changed: it is trusted, or blocked"),
    "reset": OrderWords(
        "Reset", "Forget its failures, trust it again and close its circuit.",
        "no state changed; older failures are forgotten",
    ),
    "close": OrderWords(
        "Close circuit", "Send calls again, with clean counts.", "it was closed already; its counts are clean"
    ),
    "open": OrderWords(
        "Open circuit", "Send no calls until the circuit is closed by an order.", "it was held open already"
    ),
    "restore": OrderWords("Restore tool", "Offer the removed tool again, trusted.", "it was not removed"),
    "quality": OrderWords("Restore score", "Give the tool its score back.", "it had its score already"),
    "false-alarm": OrderWords(
        "False alarm", "Say that this was wrong: counted, and the agent is left alone about it in this session.",
        "noted as a false alarm",
    ),
}  # fmt: skip


def orders_for(state: State) -> tuple[str, ...]:
    """Orders that make sense for a state, the one that resolves it first; names of `ORDERS`."""
    if state.get("scope") == "user":
        return ()
    match state["kind"], state.get("state"):
        case "stuck", _:
            return ("false-alarm",)
        case "trust", "blocked":
            return ("reset",)
        case "trust", "removed":
            return ("restore",)
        case "trust", "escalated":
            return ("approve", "recover", "reset")
        case "trust", "recovering":
            return ("recover", "approve")
        case "trust", _:
            return ("reset",) if state.get("failures") else ()
        case "breaker", "closed":
            return ("open",) if (state.get("mode") or "enforce") == "enforce" else ("close",)
        case "breaker", "forced_open":
            return ("close",)
        case "breaker", _:
            return ("close", "open")
        case "quality", _:
            return ("quality",) if (state.get("score") or 0) < (state.get("registered_score") or 0) else ()
    return ()
