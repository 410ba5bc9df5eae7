"""Ready-to-show texts of trust decisions (docs/trust.md)."""

from __future__ import annotations

from ...rules.rules import EscalationRule
from ...schemas.codec import rfc3339
from ...schemas.vocabulary import TrustState
from ..calls.keys import in_quotes
from .state import TrustRecord
from .trust import Change, Move, recovery_at


def span(seconds: float) -> str:
    """A duration as people say it: `90s`, `5m`, `1h`, `2h 30m`."""
    whole = round(seconds)
    if whole < 120 and whole % 60:
        return f"{whole}s"
    hours, minutes = divmod(whole // 60, 60)
    if not hours:
        return f"{minutes}m"
    return f"{hours}h {minutes}m" if minutes else f"{hours}h"


def number(value: float) -> str:
    """A count without needless decimals: `3`, `2.5`."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def reason(change: Change, rule: EscalationRule) -> str:
    """Why a key moved, with its counts: `3/3 failures in 1h`."""
    window = span(rule.window_seconds)
    limit = number(change.threshold) if change.threshold is not None else ""
    match change.move:
        case Move.COUNT:
            return f"{number(change.amount)}/{limit} failures in {window}"
        case Move.CONSECUTIVE:
            return f"{number(change.amount)}/{limit} consecutive failures"
        case Move.RATE:
            return f"{change.amount:.0%} failure rate in {window} (limit {change.threshold:.0%})"
        case Move.REPEATED_AUTH:
            return f"{number(change.amount)} authentication failures in {window}: the credential may be invalid"
        case Move.SECURITY:
            return "security concern: a dangerous command was attempted"
        case Move.RISKY:
            return "security concern: a risky command was attempted"
        case Move.EXHAUSTED:
            return f"{number(change.amount)} more failures without a success while escalated"
        case Move.RELAPSE:
            return "failed again while recovering"
        case Move.RECOVERY_STARTED:
            return "a success after the cooldown"
        case Move.RECOVERY:
            return f"{number(change.amount)}/{limit} successes since recovery began"
    return {
        Move.RESET: "reset by an operator",
        Move.RECOVER: "recovered by an operator",
        Move.REMOVE: "removed by an operator",
        Move.RESTORE: "restored by an operator",
    }.get(change.move, str(change.move))


def recovery_hint(record: TrustRecord, rule: EscalationRule, order_key: str) -> str:
    """Describe what leads back to trust; `order_key` names the record whose reset makes calls of the key run again."""
    match record.state:
        case TrustState.ESCALATED:
            when = rfc3339(recovery_at(record, rule))[11:19]
            return (
                f"{rule.success_count_to_recover} successful calls after {when} UTC restore trust; "
                f"`trustfold reset {in_quotes(order_key)}` at once"
            )
        case TrustState.RECOVERING if record.pending:
            return f"ready: `trustfold recover {in_quotes(order_key)}` restores trust"
        case TrustState.RECOVERING:
            return f"{record.successes_needed - record.successes} more successful calls restore trust"
        case TrustState.BLOCKED:
            return f"manual reset required: `trustfold reset {in_quotes(order_key)}`"
        case TrustState.REMOVED:
            return f"an operator took the tool away; `trustfold restore {in_quotes(order_key)}` brings it back"
    return ""


def subject(record: TrustRecord) -> str:
    """Subject of a notification: `Tool 'bash|command=git'`, `Service 'api.example.com'`."""
    name = record.key.removeprefix("service:")
    return f"Service '{name}'" if record.scope == "service" else f"Tool '{record.key}'"


def notification(record: TrustRecord, change: Change, why: str, rule: EscalationRule, order_key: str) -> str:
    """What a user is shown when a key moves."""
    name = subject(record)
    if change.pending:
        return f"{name} ready for recovery. Use `trustfold recover {in_quotes(order_key)}` to restore trust."
    match change.after:
        case TrustState.ESCALATED:
            until = rfc3339(record.escalated_at + record.duration_ms)[11:19]
            return (
                f"⚠️ {name} escalated to require approval\n   Reason: {why}\n   Duration: until {until} UTC\n"
                f"   Recovery: {rule.success_count_to_recover} successful calls after cooldown"
            )
        case TrustState.BLOCKED:
            return f"🛑 {name} blocked - {why}\n   {recovery_hint(record, rule, order_key)}"
        case TrustState.RECOVERING:
            return f"{name} is recovering ({record.successes}/{record.successes_needed} successes)"
        case TrustState.REMOVED:
            return f"{name} removed by an operator"
    return f"✓ {name} recovered" if change.move is not Move.RESTORE else f"✓ {name} restored"


def permission_warning(
    record: TrustRecord, change: Change, why: str, rule: EscalationRule, order_key: str
) -> str | None:
    """Warning for a permission prompt while the key is not trusted."""
    if change.after is TrustState.TRUSTED:
        return None
    return f"This tool has been {change.after} due to: {why}\n{recovery_hint(record, rule, order_key)}"
