"""Keyword options that public calls of a guard share (PEP 692); each of them may be left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from ..schemas.settings import SettingsOverrides
from ..schemas.tool_envelopes import CallHints, CallTrace, DedupeMode
from ..schemas.vocabulary import FailureSeverity
from .clock import GuardClock
from .errors import Passthrough
from .failure import Answers
from .guarantees import ExecutionGuarantees
from .idempotency.record import DedupeStore
from .metrics import GuardMetrics
from .nudges import Inject
from .settings import RetryPolicy, SettingsOptions


class GuardPlugins(TypedDict, total=False):
    """Objects of the platform that a guard uses.

    Attributes:
        store: store of idempotency keys, by default in this process; a fleet needs a shared one.
        permission: permission plugin, plain or wrapped.
    """

    store: DedupeStore | None
    permission: Any


class GuardOptions(SettingsOptions, GuardPlugins, total=False):
    """Options of every guard: fields of `GuardSettings`, and `GuardPlugins`."""


class GuardParts(GuardPlugins, total=False):
    """Parts of a guard: `GuardPlugins`, and what tests replace.

    Attributes:
        clock: clock.
        metrics: counters that the backend increments, too.
        draw: draws a delay before a retry from the least and the largest one, milliseconds.
    """

    clock: GuardClock | None
    metrics: GuardMetrics | None
    draw: Callable[[float, float], float] | None


class ToolOptions(TypedDict, total=False):
    """Declarations of a tool, as the fields of `ToolRegistration`."""

    read_only: bool | None
    idempotent: bool | None
    dedupe: bool | None
    scope: str | None
    exact_types: bool
    on_store_down: str | None
    reconcile: Callable[[str | None, Mapping[str, Any]], Any] | None
    volatile_params: Iterable[str]
    passthrough: Passthrough
    answers: Answers
    service: str | None
    plugin_name: str | None
    description: str
    tags: Iterable[str]
    timeout_ms: float | None
    retry: RetryPolicy | None
    dedupe_mode: DedupeMode | None
    cost_usd: float | Callable[[Any], float] | None
    shadow: bool | None
    annotations: dict[str, Any]
    workspace_digest: Callable[[], str | None] | None


class SessionOptions(TypedDict, total=False):
    """Options of a session; those that name somebody or something default to the guard's settings.

    Attributes:
        model: name of the model.
        model_tier: class of the model; recursive calls have a circuit per tier.
        workspace_id: workspace of the tools.
        user_id: user of the agent.
        actor_id: whom calls are made for.
        agent_id: id of the agent in the session.
        settings: the session's overrides of the rules.
        guarantees: its limits; by default the usual ones from its first recursive call on.
        inject_context_hint: called with the text of a gentle nudge. No callback may block.
        inject_system_guidance: called with the text of a direct nudge.
        request_pause: called with the text of a nudge that interrupts.
        notify_user: called with what a person should be told about a pattern; the model is not to see it.
        on_suggestion: called with each other decision for the session: a model, an exceeded limit.
    """

    model: str | None
    model_tier: str | None
    workspace_id: str | None
    user_id: str | None
    actor_id: str | None
    agent_id: str | None
    settings: SettingsOverrides | None
    guarantees: ExecutionGuarantees | None
    inject_context_hint: Inject | None
    inject_system_guidance: Inject | None
    request_pause: Inject | None
    notify_user: Inject | None
    on_suggestion: Callable[[Any], Any] | None


class CallIds(TypedDict, total=False):
    """The model's ids of one call.

    Attributes:
        call_id: id of the call, which pairs its events.
        message_id: id of the message that made the call; by default that of `GuardSession.step`.
    """

    call_id: str | None
    message_id: str | None


class CallOptions(CallIds, total=False):
    """Options of one call; owner, model and workspace default to those of the session, then of the guard.

    Attributes:
        request_id: unique id of the request.
        idempotency_key: key of the call, 1 to 1024 characters; calls with the same key are one.
        dedupe_mode: as `DedupePolicy.mode`.
        scope: `session` or `global`: the calls that may share a key.
        workspace_id: workspace of the tool.
        namespace: namespace of the tool, part of computed keys.
        actor_id: whom the call is made for.
        user_id: user of the agent.
        tenant_id: tenant.
        agent_id: id of the agent in its session.
        correlation_id: the platform's id of what the call belongs to.
        model: name of the calling model.
        model_tier: class of the model.
        recursion_depth: 1 or more for a call that a called agent makes, 0 for others.
        scenario: task in words, for the tool's quality.
        timeout_ms: milliseconds that an attempt may take.
        deadline_ms: milliseconds from now until which the call may take.
        max_attempts: number of attempts, including the first.
        max_elapsed_ms: milliseconds within which a further attempt may begin.
        cost_usd: expected cost in US dollars, for the session's limits.
        hints: hints of an envelope, as `CallHints` or by name.
        trace: the platform's trace.
        approved: a person's answer to the approval request; by default the permission plugin asks.
        workspace_digest: as of `ToolRegistration`.
    """

    request_id: str | None
    idempotency_key: str | None
    dedupe_mode: DedupeMode | str | None
    scope: str | None
    workspace_id: str | None
    namespace: str | None
    actor_id: str | None
    user_id: str | None
    tenant_id: str | None
    agent_id: str | None
    correlation_id: str | None
    model: str | None
    model_tier: str | None
    recursion_depth: int | None
    scenario: str | None
    timeout_ms: float | None
    deadline_ms: float | None
    max_attempts: int | None
    max_elapsed_ms: float | None
    cost_usd: float | None
    hints: CallHints | Mapping[str, Any] | None
    trace: CallTrace | None
    approved: bool | None
    workspace_digest: Callable[[], str | None] | None


class FailureDetails(TypedDict, total=False):
    """Details of a reported failure.

    Attributes:
        severity: class of the failure; by default found in its error.
        domain: domain that the tool spoke to.
        service: the tool's service; by default as registered.
        context: further values; published redacted.
        recoverable: default True; with False trust is not restored automatically.
    """

    severity: FailureSeverity | str | None
    domain: str | None
    service: str | None
    context: dict[str, Any] | None
    recoverable: bool | None


def check_names(function: str, given: Mapping[str, object], known: frozenset[str]) -> None:
    """Refuse keyword arguments that a function does not have, as Python does for its parameters.

    Args:
        function: its name, for the message.
        given: its keyword arguments.
        known: those that it has: `__optional_keys__` of its options.
    """
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
