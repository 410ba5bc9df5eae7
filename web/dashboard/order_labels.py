"""Texts of orders on pages, and the orders available for a state."""

from __future__ import annotations

from typing import NamedTuple

from ...projections.incidents import NEEDED, IncidentRecord
from ...schemas.public_state import BreakerUpdated, QualityUpdated, TrustUpdated
from ...schemas.vocabulary import BreakerMode, BreakerState, TrustState


class OrderWords(NamedTuple):
    """Texts of an order."""

    label: str  # text of its button
    effect: str  # what it does, in a sentence
    unmoved: str  # message if it changed no state


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
    "acknowledge": OrderWords(
        "Acknowledge", "Say that somebody deals with it: it stands below the others until it is over or more severe.",
        "it stands below the others until it is over or more severe",
    ),
    "withdraw": OrderWords(
        "Withdraw", "Take the acknowledgement back: nobody deals with it.", "nobody deals with it any more"
    ),
}  # fmt: skip


_OF_TRUST: dict[TrustState, tuple[str, ...]] = {
    TrustState.BLOCKED: ("reset",),
    TrustState.REMOVED: ("restore",),
    TrustState.ESCALATED: ("approve", "recover", "reset"),
    TrustState.RECOVERING: ("recover", "approve"),
}


def orders_for(one: IncidentRecord) -> tuple[str, ...]:
    """Names in `ORDERS` of the orders available for an incident, or a state; the one that resolves it first."""
    known = one.state in NEEDED and not one.workspace.startswith("user:")
    return (*_resolving(one), *(("withdraw" if one.acknowledged else "acknowledge",) if known else ()))


def _resolving(one: IncidentRecord) -> tuple[str, ...]:
    if one.session is not None:
        return ("false-alarm",) if one.session.patterns else ()
    parts = [part for part in one.parts if part.scope != "user"]
    trust = [part for part in parts if isinstance(part, TrustUpdated)]
    if len(parts) > 1 and trust:
        blocked = any(part.state is TrustState.BLOCKED for part in trust)
        return (one.verb,) if blocked else tuple(dict.fromkeys((one.verb, "approve", "reset")))
    match parts[0] if parts else None:
        case TrustUpdated() as state:
            return _OF_TRUST.get(state.state, ("reset",) if state.failures else ())
        case BreakerUpdated(state=BreakerState.CLOSED) as state:
            return ("open",) if state.mode in {None, BreakerMode.ENFORCE} else ("close",)
        case BreakerUpdated() as state:
            return ("close",) if state.state is BreakerState.FORCED_OPEN else ("close", "open")
        case QualityUpdated() as state:
            return ("quality",) if (state.score or 0) < (state.registered_score or 0) else ()
    return ()
