"""Making a call out of what its caller says: ids, whose it is, and the options about it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..schemas.errors import ConfigError
from ..schemas.tool_envelopes import DedupeMode, ToolCallEnvelope
from .clock import Clock, new_id
from .errors import EnvelopeRejected
from .guarantees import amount
from .request import Call
from .settings import GuardSettings, RetryPolicy
from .tools import Tool

if TYPE_CHECKING:
    from .session import GuardSession


def prepare(
    tool: Tool,
    args: Mapping[str, Any],
    session_id: str,
    options: Mapping[str, Any],
    *,
    session: GuardSession | None,
    settings: GuardSettings,
    clock: Clock,
) -> Call:
    """A call that begins now. What its options leave out its session says, else the settings.

    Raises:
        EnvelopeRejected: an option that does not exist, or that makes no sense.
    """
    given = {name: value for name, value in options.items() if value is not None}
    workspace = given.pop("workspace_id", None) or settings.workspace_id
    call = Call(tool, args, session_id, workspace)
    call.started_ms, call.began_ms = clock.now_ms(), clock.monotonic_ms()
    call.request_id = _id_or(given.pop("request_id", None), new_id(call.started_ms))
    call.call_id = _id_or(given.pop("call_id", None), call.request_id)
    who = session if session is not None else settings
    call.namespace = given.pop("namespace", settings.namespace)
    call.actor_id = given.pop("actor_id", who.actor_id)
    call.user_id = given.pop("user_id", who.user_id)
    call.agent_id = given.pop("agent_id", who.agent_id)
    call.model = given.pop("model", who.model)
    call.model_tier = given.pop("model_tier", who.model_tier)
    call.tenant_id = given.pop("tenant_id", settings.tenant_id)
    if session is not None:
        call.turn_index = session.turn_index
        if session.workspace_id != settings.workspace_id and "workspace_id" not in options:
            call.workspace_id = session.workspace_id
    if given:
        _apply(call, given)
    return call


def options_of(given: ToolCallEnvelope, now_ms: int) -> dict[str, Any]:
    """What an envelope says about its call besides tool, arguments and session (seed 3 §1.1)."""
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
    """An id that events may carry; models and their servers make up ids that are none."""
    good = isinstance(given, str) and 0 < len(given) <= 256 and "\x1f" not in given and "\x00" not in given
    return given if good else otherwise


_PLAIN_OPTIONS = frozenset({"correlation_id", "model_tier", "recursion_depth", "scenario", "hints", "trace"})


def _apply(call: Call, given: dict[str, Any]) -> None:
    """Take up the options of one call.

    Raises:
        EnvelopeRejected: an option that does not exist, or that makes no sense.
    """
    for name, value in given.items():
        if name in _PLAIN_OPTIONS:
            setattr(call, name, value)
        elif name == "idempotency_key":
            if not isinstance(value, str) or not 0 < len(value) <= 1024:
                raise EnvelopeRejected("idempotency_key must be a text of 1 to 1024 characters")
            call.given_key = value
        elif name == "dedupe_mode":
            try:
                call.dedupe_mode = DedupeMode(value)
            except ValueError:
                raise EnvelopeRejected(f"dedupe_mode {value!r}: use {', '.join(DedupeMode)}") from None
        elif name == "deadline_ms":
            call.deadline_ms = call.began_ms + float(value)
        elif name == "cost_usd":
            try:
                call.cost_usd = amount(value)
            except ConfigError as error:
                raise EnvelopeRejected(str(error)) from None
        elif name == "timeout_ms":
            call.tool = replace(call.tool, timeout_ms=float(value))
        elif name in {"max_attempts", "max_elapsed_ms"}:
            RetryPolicy(**{name: value})
            setattr(call, name, value)
        else:
            raise EnvelopeRejected(f"a call has no option {name!r}")
