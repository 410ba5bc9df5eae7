"""Application of operators' trust commands to the records they concern, here and in other states of the workspace.

A command for a tool or service as a whole also applies to its fine keys, in whichever state they are kept.
"""

from __future__ import annotations

from ...errors import EventRejected, RejectReason
from ...rules.rules import RuleSet
from ...schemas.commands import ToolRemove, ToolRestore, TrustApprove, TrustRecover, TrustReset
from ...schemas.outcomes import TrustOrder, TrustOrderType
from ...schemas.vocabulary import TrustState, TrustTrigger
from ..calls.attempt import danger_of_key
from ..calls.keys import has_scope, tool_of_key, unescape
from . import emitters, fleet_report, trust
from .emitters import TrustCause
from .tool_state import ToolFold, ToolState, TrustRecord
from .trust import OperatorOrder
from .trust_scopes import note_ages, own_record, publish, records, rule_of

APPROVAL_S = 3600.0  # Seconds after which an unused approval expires, unless its command states another time

# Moves that are published even for a tool whose record is kept for the fleet alone
_SEEN_ORDERS = frozenset({TrustTrigger.REMOVE, TrustTrigger.RESTORE})

# Orders that always publish what is left: `state` may show what a lost changelog held, which nothing else corrects
_LIFTS = frozenset({TrustTrigger.RESET, TrustTrigger.RECOVER, TrustTrigger.RESTORE})

TrustCommand = TrustReset | TrustRecover | TrustApprove | ToolRemove | ToolRestore  # An operator's command about trust


def check_room(state: ToolState, command: ToolRemove, rules: RuleSet) -> None:
    """Reject a removal that would add a fine key beyond the limit; called before anything has changed."""
    most = rules.trust.max_fine_keys
    if len(state.fine) < most or not _is_new_fine_key(state, command.key):
        return
    raise EventRejected(
        RejectReason.BAD_VALUE,
        "$.key",
        f"{command.key!r} is not tracked, and {state.scope} has its {most} fine keys (trust.max_fine_keys); remove the "
        "tool as a whole, or raise that bound and give the order again",
    )


def apply_command(fold: ToolFold, command: TrustCommand) -> None:
    """Apply a command to the key it names; one for a scope as a whole also applies to its fine keys."""
    state, name = fold.state, command.key
    order = _order_of(command, fold.at)
    whole = has_scope(name) or unescape(name) == state.name
    if whole and state.trust is None and order.trigger is TrustTrigger.REMOVE:
        state.trust = own_record(state)
    named = order.trigger is TrustTrigger.REMOVE or (order.trigger is None and danger_of_key(name) is not None)
    if named and _is_new_fine_key(state, name):
        state.fine[name] = TrustRecord(key=name, scope="key")
    # A command about an unknown key creates no record, unless it removes the key or approves a dangerous call.
    meant = [state.fine[name]] if name in state.fine else []
    if whole:
        meant = records(state)
        for service in state.services:
            _pass_on(fold, f"service:{service}", order)
    if not meant and order.trigger in _LIFTS:
        unknown = own_record(state) if whole else TrustRecord(key=name, scope="key")
        _apply(fold, [unknown], order, whole=False)
    _apply(fold, meant, order, whole=whole)
    fleet_report.after_order(fold, command.id)


def apply_forwarded(fold: ToolFold, event: TrustOrder) -> None:
    """Apply an order for a tool as a whole, passed on by it, to its fine keys at this service."""
    mine = [record for record in fold.state.fine.values() if tool_of_key(record.key) == event.tool_name]
    _apply(fold, mine, OperatorOrder(event.order, event.cause, event.until_ms, event.approved_session), whole=True)


def _order_of(command: TrustCommand, at: int) -> OperatorOrder:
    """Order of a command given at a time in milliseconds."""
    until, session = 0, ""
    if isinstance(command, TrustApprove):
        session = command.session_id or ""
        until = at + int((APPROVAL_S if command.expires_in_s is None else command.expires_in_s) * 1000)
    tag: TrustOrderType = command.__struct_config__.tag  # type: ignore[assignment]  # one of the union's tags
    return OperatorOrder(tag, command.id, until, session)


def _is_new_fine_key(state: ToolState, key: str) -> bool:
    """Whether a key is a fine key without a record."""
    return not (has_scope(key) or unescape(key) == state.name or key in state.fine)


def _pass_on(fold: ToolFold, scope: str, order: OperatorOrder) -> None:
    """Pass an order for this tool on to a service of the workspace, for all fine keys of the tool there."""
    passed = TrustOrder(
        id=f"{order.cause}/{scope}",
        time_ms=fold.at,
        workspace_id=fold.state.workspace_id,
        scope=scope,
        cause=order.cause,
        tool_name=fold.state.name,
        order=order.type,
        until_ms=order.until,
        approved_session=order.session,
    )
    fold.emit.record("outcomes", passed.key, passed, passed.id)


def _apply(fold: ToolFold, meant: list[TrustRecord], order: OperatorOrder, *, whole: bool) -> None:
    """Apply an order to records; one for a whole scope skips trusted fine keys, unless it is a reset."""
    state, trigger = fold.state, order.trigger
    for record in meant:
        wide = record is state.trust
        if whole and record.state is TrustState.TRUSTED and not wide and trigger is not TrustTrigger.RESET:
            continue
        # An unpublished record of an MCP server's tool is kept for the fleet alone, so its changes are not emitted.
        of_mcp = state.kind == "mcp" and state.kind_of_scope == "tool"
        hidden = wide and of_mcp and not record.published and trigger not in _SEEN_ORDERS
        rule = rule_of(state, record, fold.rules.trust)
        changes = trust.apply_order(record, order, rule, fold.at, whole=whole, hidden=hidden)
        if hidden:
            continue
        for change in changes:
            emitters.trust_changed(fold, record, change, rule, TrustCause(order.cause))
        record.published = record.published or trigger in _LIFTS
        publish(fold, record, rule)
    note_ages(state)
