"""Permission check that combines trust with the platform's permission plugin (docs/design/guard.md#permission).

Blocked and removed tools are refused whatever the plugin says; escalated and recovering ones need approval, even if the
plugin would allow them; all other calls are decided by the plugin alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..projections.calls.attempt import danger_of_key
from ..projections.calls.keys import order
from ..schemas.codec import dated
from ..schemas.event_base import epoch_ms
from ..schemas.vocabulary import TrustState
from .state_cache import ASKING, DANGER_SCOPE, TrustEntry

if TYPE_CHECKING:
    from .interface import GuardInterface

CONTEXT_KEY = "_reliability_escalation"  # Key of the escalation in the context that a permission plugin receives
DANGEROUS = "dangerous"  # State, in that context, of a call that is dangerous whatever its history


class PermissionPlugin(Protocol):
    """Interface of the platform's own plugin; its method may be a coroutine function."""

    def check_permission(
        self,
        tool_name: str,
        args: dict[str, Any],
        context: dict[str, Any] | None = None,
        call_id: str | None = None,
    ) -> Any:
        """Return whether a call may run, and why: a pair of a boolean and an object, or a boolean."""


class PermissionAnswer(NamedTuple):
    """Answer to a permission check."""

    allowed: bool  # the call may run
    info: dict[str, Any]  # the plugin's explanation, and `method`: how it was decided


class DisplayInfo(NamedTuple):
    """Texts of an escalation for a permission prompt (docs/design/guard.md#permission)."""

    summary: str
    details: str
    warnings: str
    hint: str
    format_hint: str = "text"
    warning_level: str = "warning"


def must_ask(trust: TrustEntry | None) -> bool:
    """Whether a person must approve the call."""
    return trust is not None and trust.state in ASKING


def is_refused(trust: TrustEntry | None) -> bool:
    """Whether nobody may approve the call."""
    return trust is not None and trust.state in {TrustState.BLOCKED, TrustState.REMOVED}


def escalation_context(trust: TrustEntry) -> dict[str, Any]:
    """Return the context entry of an escalated call."""
    record = trust.record
    return {
        "state": DANGEROUS if record.scope == DANGER_SCOPE else str(trust.state),
        "key": record.key,
        "reason": record.reason or "",
        "failure_count": _count(record.failures),
        "threshold": _count(record.threshold),
        "window": in_words(record.window_s) if record.window_s else "",
        "since": when(record.since, trust.now_ms) if record.since else "",
        "last_failure": when(record.last_failure_at, trust.now_ms) if record.last_failure_at else "",
        "expires_at": record.expires_at,
        "recovery_hint": recovery_hint(trust),
    }


def in_words(seconds: float) -> str:
    """Format a duration: `90 seconds`, `5 minutes`, `1 hour`, `2 hours 30 minutes`."""
    whole = round(seconds)
    if whole < 60 or (whole < 120 and whole % 60):
        return _units(whole, "second")
    hours, minutes = divmod(whole // 60, 60)
    return " ".join(part for part in (_units(hours, "hour"), _units(minutes, "minute")) if part)


def _units(count: int, unit: str) -> str:
    return f"{count} {unit}{'' if count == 1 else 's'}" if count else ""


def when(time: str, now_ms: int) -> str:
    """Date of a published time, with its distance from now."""
    return dated(epoch_ms(datetime.fromisoformat(time)), now_ms)


def recovery_hint(trust: TrustEntry) -> str:
    """Describe how trust is restored, with the commands that do so."""
    record = trust.record
    needed = record.successes_needed or 1
    keys = trust.resets or (record.key,)
    place = record.workspace_id
    reset = " and ".join(order("reset", key, place) for key in keys)
    match trust.state:
        case TrustState.ESCALATED if record.scope == DANGER_SCOPE:
            return f"a person may let one call pass: {order('approve', record.key, place, '--once')}"
        case TrustState.BLOCKED if record.scope == DANGER_SCOPE:
            kind = danger_of_key(record.key)
            return (
                f"the rules refuse this (calls.danger.{kind}); a person can make an exception in calls.security_allow"
            )
        case TrustState.ESCALATED if record.scope == "user":
            return "it ends by itself, or with `trustfold reset` of the tool in the workspaces where it fails"
        case TrustState.ESCALATED:
            after = f" after {when(record.recovery_at, trust.now_ms)}" if record.recovery_at else " after the cooldown"
            return f"{needed} successful calls{after} restore trust; {reset} at once"
        case TrustState.RECOVERING if record.recovery_pending:
            orders = " and ".join(order("recover", key, place) for key in keys)
            return f"ready: {orders} restores trust"
        case TrustState.RECOVERING:
            return f"{max(0, needed - (record.successes or 0))} more successful calls restore trust"
        case TrustState.BLOCKED:
            return f"manual reset required: {reset}"
        case TrustState.REMOVED:
            return f"an operator took the tool away; {order('restore', record.key, place)} brings it back"
    return ""


def display_info(tool_name: str, context: Mapping[str, Any] | None) -> DisplayInfo | None:
    """Return the texts of a prompt; None if the context holds no escalation."""
    escalation = (context or {}).get(CONTEXT_KEY)
    if not escalation:
        return None
    window = f" in {escalation['window']}" if escalation["window"] else ""
    last = f", the last at {escalation['last_failure']}" if escalation["last_failure"] else ""
    recent = f"Recent failures: {escalation['failure_count']}{window}{last}"
    return DisplayInfo(
        summary=f"{tool_name} ({escalation['state']} - requires approval)",
        details=f"{escalation['key']}: {escalation['reason']}\n{recent}",
        warnings=(
            f"This tool has been {escalation['state']} due to: {escalation['reason']}\n{recent}\n"
            f"{escalation['recovery_hint']}"
        ),
        hint=escalation["recovery_hint"],
    )


def refusal_message(tool_name: str, trust: TrustEntry) -> str:
    """Explain to the model and the user why a call is refused or needs approval, naming the narrowest cause."""
    record = trust.record
    if record.scope == DANGER_SCOPE:
        return f"{record.reason}; {recovery_hint(trust)}"
    why = f" - {record.reason}" if record.reason else ""
    why += f", since {when(record.since, trust.now_ms)}" if record.since else ""
    subject = f"tool '{record.key if record.scope == 'key' else tool_name}'"
    if record.scope == "service":
        subject = f"service '{record.key.removeprefix('service:')}' behind {subject}"
    return f"{subject} is {trust.state}{why}; {recovery_hint(trust)}"


def way_out(trust: TrustEntry) -> str:
    """Return the orders that let one call pass, to append to a refusal; empty if no operator can, or it says so."""
    if trust.record.scope == DANGER_SCOPE:
        return ""
    orders = " and ".join(order("approve", key, trust.record.workspace_id, "--once") for key in trust.asking)
    return f"; one call passes by {orders}" if orders else ""


Ask = Callable[[str, dict[str, Any], dict[str, Any] | None, str | None], "Awaitable[Any] | Any"]


class PermissionWrapper:
    """Wraps a permission plugin with the trust check; itself a plugin with an asynchronous interface."""

    def __init__(
        self, inner: PermissionPlugin | Ask | None, guard: GuardInterface | None = None, *, ask: Ask | None = None
    ) -> None:
        """Wrap a plugin, or a function with the arguments of its `check_permission`.

        Args:
            inner: plugin that decides about trusted calls; for others its context has `force_ask`. None: trusted calls
                are allowed without asking, and only `ask` is called for the rest.
            guard: needed if the platform calls the wrapper itself instead of passing it to a guard.
            ask: asks a person, for plugins without `force_ask`: calls that the plugin allows by itself (its answer's
                `method` is not `user`) are asked again with it.
        """
        self._inner = inner
        self._guard = guard
        self._ask = ask

    def decides(self, trust: TrustEntry | None) -> bool:
        """Whether the wrapper decides about a call with this trust; calls it does not decide about are allowed."""
        return self._inner is not None or must_ask(trust)

    async def check_permission(
        self,
        tool_name: str,
        args: dict[str, Any],
        context: dict[str, Any] | None = None,
        call_id: str | None = None,
        *,
        session_id: str = "",
    ) -> tuple[bool, dict[str, Any]]:
        """Return the plugin's answer combined with trust (docs/design/guard.md#permission)."""
        trust = self._guard.trust_of(tool_name, args, session_id=session_id) if self._guard is not None else None
        answer = await self.decide(tool_name, args, trust, context=context, call_id=call_id)
        return answer.allowed, answer.info

    async def decide(
        self,
        tool_name: str,
        args: dict[str, Any],
        trust: TrustEntry | None,
        *,
        context: dict[str, Any] | None = None,
        call_id: str | None = None,
    ) -> PermissionAnswer:
        """Decide about one call whose trust is known."""
        if trust is not None and is_refused(trust):
            return PermissionAnswer(
                allowed=False, info={"method": "reliability", "reason": refusal_message(tool_name, trust)}
            )
        if trust is not None and must_ask(trust):
            context = {**(context or {}), CONTEXT_KEY: escalation_context(trust), "force_ask": True}
        plugin: Any = self._inner or self._ask
        if plugin is None or (self._inner is None and not must_ask(trust)):
            return PermissionAnswer(allowed=not must_ask(trust), info={"method": "reliability"})
        check: Ask = getattr(plugin, "check_permission", plugin)
        answer = await _asked(check, tool_name, args, context, call_id)
        if trust is None or not must_ask(trust):
            return answer
        if answer.allowed and self._inner and self._ask is not None and answer.info.get("method") != "user":
            answer = await _asked(self._ask, tool_name, args, context, call_id)
            answer.info.setdefault("method", "user")
        answer.info.setdefault("escalation", context[CONTEXT_KEY] if context else {})
        return answer


async def _asked(check: Ask, *arguments: Any) -> PermissionAnswer:
    given = check(*arguments)
    return _answer(await given if inspect.isawaitable(given) else given)


def _answer(given: Any) -> PermissionAnswer:
    if isinstance(given, tuple) and given:
        info = given[1] if len(given) > 1 and isinstance(given[1], Mapping) else {}
        return PermissionAnswer(bool(given[0]), dict(info))
    return PermissionAnswer(bool(given), {})


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
