"""Builds a call from its caller's arguments: ids, owner and per-call options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import ConfigError
from ..schemas.fields import MAX_SPAN_MS
from ..schemas.tool_envelopes import CallHints, DedupeMode, ToolCallEnvelope
from .clock import GuardClock, new_id
from .errors import EnvelopeRejected
from .guarantees import amount
from .json_view import clean_text, text_of
from .request import GuardedCall, named
from .settings import SCOPES, GuardSettings, RetryPolicy
from .tools import ToolRegistration

if TYPE_CHECKING:
    from .session import GuardSession


class CallBuilder:
    """Builds the calls of one guard."""

    def __init__(self, settings: GuardSettings, clock: GuardClock) -> None:
        """Take the defaults that neither call options nor the session give from these settings."""
        self._settings = settings
        self._clock = clock

    def build(
        self,
        tool: ToolRegistration,
        args: Mapping[str, Any],
        session_id: str,
        session: GuardSession | None,
        options: Mapping[str, Any],
    ) -> GuardedCall:
        """Build a call that begins now; missing options come from the session, else from the settings.

        Raises:
            EnvelopeRejected: an unknown option, or an invalid value.
        """
        settings, clock = self._settings, self._clock
        given = {
            name: _name(value) if name in _NAMES else value for name, value in options.items() if value is not None
        }
        workspace = given.pop("workspace_id", None) or settings.workspace_id
        call = GuardedCall(tool, named(args), session_id, workspace)
        call.shadow = settings.observes(session_id, shadow=tool.shadow, read_only=tool.read_only)
        call.families, call.rules, call.failures = settings.families, settings.calls, settings.failures
        call.started_ms, call.began_ms = clock.now_ms(), clock.monotonic_ms()
        call.request_id = _id_or(given.pop("request_id", None), new_id(call.started_ms))
        call.call_id = _id_or(given.pop("call_id", None), call.request_id)
        who = session if session is not None else settings
        call.namespace = given.pop("namespace", None) or settings.namespace
        call.actor_id = given.pop("actor_id", None) or who.actor_id
        call.user_id = given.pop("user_id", who.user_id)
        call.agent_id = given.pop("agent_id", who.agent_id)
        call.model = given.pop("model", who.model)
        call.model_tier = given.pop("model_tier", who.model_tier)
        call.tenant_id = given.pop("tenant_id", settings.tenant_id)
        call.message_id = _id_or(given.pop("message_id", None), "") or None
        if session is not None:
            call.message_id = call.message_id or session.message_id
            call.turn_index = session.turn_index
            if session.workspace_id != settings.workspace_id and "workspace_id" not in options:
                call.workspace_id = session.workspace_id
        if given:
            _apply(call, given)
        return call


def options_of(given: ToolCallEnvelope, now_ms: int) -> dict[str, Any]:
    """Options of an envelope other than tool, arguments and session (docs/design/guard.md#envelopes)."""
    target, payload, budget = given.target, given.payload, given.transport.retry_budget
    options: dict[str, Any] = {
        "request_id": given.request_id,
        "call_id": given.tool_call_id,
        "namespace": given.tool_namespace,
        "actor_id": target.actor_id,
        "agent_id": target.agent_id,
        "workspace_id": target.workspace_id,
        "correlation_id": target.correlation_id,
        "tenant_id": target.tenant_id,
        "idempotency_key": payload.idempotency_key,
        "dedupe_mode": given.transport.dedupe_mode,
        "max_attempts": budget.max_attempts if budget is not None else None,
        "max_elapsed_ms": budget.max_elapsed_ms if budget is not None else None,
        "hints": payload.call_hints,
        "trace": given.trace,
    }
    if given.control.deadline_at_ms is not None:
        options["deadline_ms"] = given.control.deadline_at_ms - now_ms
    return options


def _id_or(given: Any, otherwise: str) -> str:
    """Return an id that events may carry, else the default; models and servers make up ids that are not valid."""
    good = isinstance(given, str) and 0 < len(given) <= 256 and "\x1f" not in given and "\x00" not in given
    return clean_text(given) if good else otherwise


_NAMES = frozenset(
    {
        "workspace_id", "namespace", "actor_id", "user_id", "agent_id", "tenant_id", "correlation_id", "model",
        "model_tier",
    }
)  # fmt: skip
_PLAIN_OPTIONS = frozenset({"correlation_id", "model_tier", "trace"})
_HINTS = CallHints.__struct_fields__
_HINTS_IN_JSON = dict(zip(_HINTS, CallHints.__struct_encode_fields__, strict=True))


def _name(value: Any) -> str | None:
    """Return an id or a name as text; None if it is empty."""
    return text_of(value) or None


def _milliseconds(name: str, value: Any) -> float:
    number = float(value)
    if math.isnan(number):
        raise EnvelopeRejected(f"{name} is no number of milliseconds")
    return max(-MAX_SPAN_MS, min(MAX_SPAN_MS, number))


def _hints_in(given: Mapping[str, Any]) -> CallHints:
    """Return hints given by name; the names are those of the fields, or as in envelopes (`timeoutMs`).

    Raises:
        EnvelopeRejected: there is no such hint.
        ValidationError: the value of a hint is invalid.
    """
    named = {_HINTS_IN_JSON.get(name, name): value for name, value in given.items()}
    if unknown := [name for name in named if name not in _HINTS_IN_JSON.values()]:
        raise EnvelopeRejected(f"hints: there is no {text_of(unknown[0])[:40]!r}; there are {', '.join(_HINTS)}")
    return msgspec.convert(named, CallHints)


def _apply(call: GuardedCall, given: dict[str, Any]) -> None:
    """Set the options of one call."""
    for name, value in given.items():
        try:
            _apply_one(call, name, value)
        except (TypeError, ValueError, OverflowError, ConfigError) as error:
            raise EnvelopeRejected(f"{name}: {text_of(error)[:200]}") from error


def _apply_one(call: GuardedCall, name: str, value: Any) -> None:  # noqa: C901, PLR0912 - one branch an option
    """Set one option."""
    if name in _PLAIN_OPTIONS:
        setattr(call, name, value)
    elif name == "scenario":
        call.scenario = text_of(value)
    elif name == "recursion_depth":
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
            raise EnvelopeRejected("recursion_depth must be a whole number from 0 to 1000000")
        call.recursion_depth = value
    elif name == "hints":
        call.hints = _hints_in(value) if isinstance(value, Mapping) else value
        if missing := [hint for hint in _HINTS if not hasattr(call.hints, hint)]:
            raise EnvelopeRejected(f"hints have no {missing[0]}; use CallHints, or an object with its fields")
        if call.hints is not None and call.hints.timeout_ms is not None:
            replace(call.tool, timeout_ms=call.hints.timeout_ms)  # validates the value
    elif name == "scope":
        if value not in SCOPES:
            raise EnvelopeRejected(f"scope {text_of(value)[:40]!r}: use {' or '.join(SCOPES)}")
        call.scope = value
    elif name == "idempotency_key":
        if not isinstance(value, str) or not 0 < len(value) <= 1024:
            raise EnvelopeRejected("idempotency_key must be a text of 1 to 1024 characters")
        call.given_key = value
    elif name == "dedupe_mode":
        try:
            call.dedupe_mode = DedupeMode(value)
        except ValueError:
            raise EnvelopeRejected(f"dedupe_mode {text_of(value)[:40]!r}: use {', '.join(DedupeMode)}") from None
    elif name == "deadline_ms":
        call.deadline_ms = call.began_ms + _milliseconds(name, value)
    elif name == "approved":
        call.approved = value is True
    elif name == "cost_usd":
        call.cost_usd = amount(value)
    elif name == "timeout_ms":
        call.tool = replace(call.tool, timeout_ms=_milliseconds(name, value))
    elif name == "workspace_digest":
        call.tool = replace(call.tool, workspace_digest=value)
    elif name in {"max_attempts", "max_elapsed_ms"}:
        if isinstance(value, bool) or not isinstance(value, int if name == "max_attempts" else (int, float)):
            raise EnvelopeRejected(f"{name} must be a number")
        RetryPolicy(**{name: value})  # type: ignore[arg-type] # checked above
        setattr(call, name, value)
    else:
        raise EnvelopeRejected(f"a call has no option {text_of(name)[:40]!r}")
