"""The tool stage: breaker, trust, models and quality of one tool, service or model tier in one workspace.

Folds each outcome into the circuit of its scope and into up to two trust records: the scope's own and the fine key's,
each with its own rule. A fine key that names a service lives with the service, any other with its tool, so that one
state knows all records that one outage of a service, or of a tool, moves (docs/trust.md, Scopes). Breaker and trust
fold from the same outcome, never from each other's output.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from ...schemas import commands as cmd
from ...schemas.codec import decode_command
from ...schemas.errors import EventRejected, RejectReason
from ...schemas.events import epoch_ms
from ...schemas.outcomes import (
    DEFAULT_WORKSPACE,
    US,
    CallOutcome,
    Outcome,
    OutcomeBase,
    PatternSeen,
    ProbeRequest,
    TimePassed,
    TrustOrder,
    decode_outcome,
)
from ...schemas.rules import EscalationRule, Rules
from ...schemas.vocabulary import Severity, TrustState
from ..calls.fingerprints import digest
from ..calls.keys import has_scope, scope_of_key, service_of_key, tool_key, tool_of_key, unescape
from ..emit import Emitter
from ..idle import HOUR_MS, WEEK_MS, Rest
from . import breaker, ending, models, quality, standing, trust
from .decide import Wider, breaker_changed, breaker_state, probe_answered, trust_changed, trust_state
from .layers import RuleBook, breaker_policy
from .state import MAX_SERVICES, ToolState, TrustRecord

MAX_RECENT_IDS = 64

UNTRACKED = "untracked"
"""Counter of failures that counted in their tool or service alone, as that had its most fine keys."""

MAX_BOOKS = 64
"""Sets of rules kept resolved by layer: as many as there are combinations of overriding scopes, and not more."""

_TRUST_MOVES: dict[str, trust.Move] = {
    "trust.reset": trust.Move.RESET,
    "trust.recover": trust.Move.RECOVER,
    "trust.approve": trust.Move.APPROVE,
    "tool.remove": trust.Move.REMOVE,
    "tool.restore": trust.Move.RESTORE,
}
"""Orders about trust, by the type of their command."""


APPROVAL_S = 3600.0
"""Seconds after which an approval that was not used ends, unless its command says otherwise."""

_SEEN_ORDERS = frozenset({trust.Move.REMOVE, trust.Move.RESTORE})


def _own_record(state: ToolState) -> TrustRecord:
    """A clean trust record for the scope as a whole."""
    kind, _, own = state.scope.partition(":")
    return TrustRecord(key=tool_key(own) if kind == "tool" else state.scope, scope=kind)


def _learn(state: ToolState, outcome: CallOutcome, at: int, rules: Rules, emit: Emitter) -> None:
    """What a call says about its model and about the tool's quality."""
    if outcome.model:
        models.fold_call(state, outcome, at, rules.models, emit)
    if state.quality is not None or outcome.verdict == "failure":
        quality.fold_call(state, outcome, at, rules.quality, emit)


def _repeated(state: ToolState, event: Any, origin: int) -> bool:
    """Whether a record was folded before: by its origin where it comes from `events`, else by its id."""
    if origin >= 0:
        return origin <= state.origins.get(event.origin_partition, -1)
    return digest(event.id.encode()) in state.recent_ids


def _remember(state: ToolState, event: Any, origin: int) -> None:
    """Remember a record that has been folded; one on which the fold failed may come again."""
    if origin >= 0:
        state.origins[event.origin_partition] = origin
        return
    state.recent_ids.append(digest(event.id.encode()))
    del state.recent_ids[:-MAX_RECENT_IDS]


def _is_new_fine_key(state: ToolState, key: str) -> bool:
    """Whether an order is about a fine key of the tool that nothing is known of."""
    return not (has_scope(key) or unescape(key) == state.scope.partition(":")[2] or key in state.fine)


def _check_room(state: ToolState, order: cmd.ToolRemove, rules: Rules) -> None:
    """Refuse an order that would remember one fine key too many; before time or order have changed anything.

    Raises:
        EventRejected: the tool has its most fine keys.
    """
    most = rules.trust.max_fine_keys
    if len(state.fine) < most or not _is_new_fine_key(state, order.key):
        return
    raise EventRejected(
        RejectReason.BAD_VALUE,
        "$.key",
        f"{order.key!r} is not tracked, and {state.scope} has its {most} fine keys (trust.max_fine_keys); remove the "
        "tool as a whole, or raise that bound and give the order again",
    )


class _Narrow(NamedTuple):
    """Record of a call's fine key, as far as this state has it.

    Attributes:
        record: its record; None where there is none here.
        digest: of the key; 0 where the call has no key but that of its tool.
        elsewhere: the record is held by another state.
    """

    record: TrustRecord | None
    digest: int = 0
    elsewhere: bool = False


def _narrow(
    state: ToolState, whole: TrustRecord, outcome: CallOutcome, rules: Rules, since: float, emit: Emitter
) -> _Narrow:
    """Find the record of a call's fine key, or make it with its first call; failures before `since` have lapsed."""
    fine_key = outcome.fine_key or whole.key
    service = service_of_key(fine_key)
    if whole.scope == "tool":
        if service:
            _note_service(state, fine_key, service, emit)
            return _Narrow(None, _digest_of(fine_key), elsewhere=True)
        if fine_key == whole.key or fine_key == tool_key(outcome.tool_name):
            if not state.keyed:
                return _Narrow(None)
            fine_key = whole.key  # calls without a fine key, beside others with one: a key of their own
        state.keyed = True
    elif f"service:{service}" != state.scope:
        return _Narrow(None, elsewhere=True)
    record = state.fine.get(fine_key)
    if record is None and (outcome.verdict != "neutral" or outcome.denied):
        most = rules.trust.max_fine_keys
        if outcome.severity is Severity.SECURITY:
            most *= 2  # charged to a key of its own whatever happens: its tool or service never answers for it
        if len(state.fine) < most or _make_room(state, since, emit):
            record = state.fine[fine_key] = TrustRecord(key=fine_key, scope="key")
        elif outcome.verdict == "failure" and not outcome.expected:
            emit.count(UNTRACKED)
    return _Narrow(record, _digest_of(fine_key))


@lru_cache(maxsize=8192)
def _digest_of(fine_key: str) -> int:
    return digest(fine_key.encode())


def _make_room(state: ToolState, since: float, emit: Emitter) -> bool:
    """Forget one trusted fine key: the earliest untroubled one, else the earliest whose failures have lapsed."""
    trusted = [record for record in state.fine.values() if record.state is TrustState.TRUSTED]
    leaving = next((one for one in trusted if not (one.failures or one.published)), None)
    if leaving is None:
        whole = state.trust.key if state.trust is not None else ""
        lapsed = (one for one in trusted if not one.failures or one.failures[-1].at < since)
        leaving = next((one for one in lapsed if one.key != whole), None)  # that one is published with its tool
    if leaving is None:
        return False
    del state.fine[leaving.key]
    if leaving.published:
        emit.tombstone("state", f"trust:{state.workspace_id}{US}{leaving.key}")
    return True


def _note_service(state: ToolState, fine_key: str, service: str, emit: Emitter) -> None:
    """Note that a service holds fine keys of this tool; a record of the key from an older version ends here."""
    state.keyed = state.keyed or state.kind != "mcp"
    if service not in state.services:
        state.services.append(service)
        del state.services[:-MAX_SERVICES]
    if state.fine and (old := state.fine.pop(fine_key, None)) is not None and old.published:
        emit.tombstone("state", f"trust:{state.workspace_id}{US}{old.key}")


class _Order(NamedTuple):
    """An order about trust.

    Attributes:
        type: of its command.
        cause: id of its command.
        until: of an approval: when it ends, milliseconds.
    """

    type: str
    cause: str
    until: int = 0

    @property
    def move(self) -> trust.Move:
        """What it does to a record."""
        return _TRUST_MOVES[self.type]


def _pass_on(
    state: ToolState, scope: str, tool_name: str, order: _Order, at: int, emit: Emitter, key: str = ""
) -> None:
    """Pass an order on to another scope of the workspace, about a tool's fine keys there or about one of them."""
    passed = TrustOrder(
        id=f"{order.cause}/{scope}",
        time_ms=at,
        workspace_id=state.workspace_id,
        scope=scope,
        cause=order.cause,
        tool_name=tool_name,
        order=order.type,  # type: ignore[arg-type]
        key=key,
        until_ms=order.until,
    )
    emit.record("outcomes", passed.key, passed, passed.id)


class ToolStage:
    """Stage of the topology that is keyed by workspace and scope."""

    name = "tool"
    sources = ("outcomes", "commands")
    state_type = ToolState
    state_version = 2
    older_states: ClassVar[Mapping[int, Callable[[memoryview], ToolState]]] = {}
    by_arrival = False
    late_ms = WEEK_MS

    def __init__(self) -> None:
        """Start with no resolved rules."""
        self._book: RuleBook | None = None
        self._books: dict[int, RuleBook] = {}

    def decode(self, topic: str, value: bytes) -> Outcome | cmd.Command:
        """Read an outcome or an operator's command."""
        if topic == "commands":
            return decode_command(value)
        try:
            return decode_outcome(value)
        except msgspec.DecodeError as error:
            message = f"not an outcome of this version of trustfold: {error}; drain the topic before upgrading"
            raise EventRejected(RejectReason.WRONG_TYPE, "$", message) from error

    def envelope(self, event: Any) -> tuple[str, str, int]:
        """State key, id and time of a record."""
        if isinstance(event, OutcomeBase):
            return f"{event.workspace_id}{US}{event.scope}", event.id, event.time_ms
        workspace = event.workspace_id or DEFAULT_WORKSPACE
        return f"{workspace}{US}{scope_of_key(event.key)}", event.id, epoch_ms(event.time)

    def fold(self, state: ToolState, event: Any, at: int, rules: Rules, emit: Emitter) -> None:
        """Fold one record; one that was seen before changes nothing."""
        origin: int = getattr(event, "origin", -1)  # commands have none
        if _repeated(state, event, origin):
            return
        if not state.scope:
            state.workspace_id, _, state.scope = self.envelope(event)[0].partition(US)
        if origin < 0 and isinstance(event, cmd.ToolRemove):
            _check_room(state, event, rules)
        if self._book is None or self._book.rules is not rules:
            self._book = self._book_of(rules)
        self._catch_up(state, at, rules, emit)
        if isinstance(event, CallOutcome):
            self._call(state, event, at, rules, emit)
            if event.approvals:
                self._use_up(state, event, at, emit)
        elif isinstance(event, ProbeRequest):
            self._probe(state, event, at, rules, emit)
        elif isinstance(event, PatternSeen):
            models.fold_pattern(state, event, at, rules.models, emit)
        elif isinstance(event, TrustOrder):
            self._passed_on(state, event, at, emit)
        elif not isinstance(event, TimePassed):  # that has taken effect by its time alone
            self._command(state, event, at, rules, emit)
        _remember(state, event, origin)

    def _book_of(self, rules: Rules) -> RuleBook:
        """The book of some rules; it holds on to them, so their id stays theirs."""
        book = self._books.get(id(rules))
        if book is None:
            if len(self._books) >= MAX_BOOKS:
                self._books.clear()
            book = self._books[id(rules)] = RuleBook(rules)
        return book

    def scopes(self, state: ToolState, event: Any) -> tuple[str, str, str]:
        """The key's workspace, and the user whose call it is; trust and circuits know no session."""
        return state.workspace_id or self.envelope(event)[0].partition(US)[0], getattr(event, "user_id", ""), ""

    def idle_ms(self, rules: Rules) -> int:
        """Milliseconds without a call or an order after which a key is forgotten, if nothing of it stands."""
        return int(rules.idle.key_idle_hours * HOUR_MS)

    def renews(self, event: Any) -> bool:
        """Whether an event is heard of the key itself; here also that its time has come."""
        del event
        return True

    def rest(self, state: ToolState) -> Rest:
        """What is left of a state, now that its key is idle."""
        return ending.rest(state)

    def part_with(self, state: ToolState, key: str, at: int, rules: Rules, emit: Emitter) -> bool:
        """Take back what a state that is forgotten has published; False: something of it stands."""
        del key, at, rules
        return ending.part_with(state, emit)

    def due_at(self, state: ToolState) -> int | None:
        """When the probe's lease or a forced opening ends."""
        return breaker.due_at(state.breaker)

    def due(self, state: ToolState, key: str, now: int, rules: Rules, emit: Emitter) -> None:
        """Append that the time has come; it takes effect when it is read back."""
        del now, rules
        record = state.breaker
        due = breaker.due_at(record)
        if due is None:
            return
        self.pass_time(state, key, due, emit, cause=record.lease.event_id if record.lease is not None else "")

    def pass_time(self, state: ToolState, key: str, at: int, emit: Emitter, *, cause: str = "") -> None:
        """Append that a time has come; it takes effect when it is read back."""
        passed = TimePassed(
            id=f"{key}@{at}/time", time_ms=at, workspace_id=state.workspace_id, scope=state.scope, cause=cause
        )
        emit.record("outcomes", key, passed, passed.id, own_partition=True)

    def _catch_up(self, state: ToolState, at: int, rules: Rules, emit: Emitter) -> None:
        """What time alone has done to the circuit, told at its own time, under ids that follow from that time."""
        record = state.breaker
        if not breaker.may_move_by_time(record):
            return
        policy = breaker_policy(rules.breakers, state.scope, record.tool_class)
        cause, now, traceparent = emit.cause, emit.at, emit.traceparent
        lease = record.lease
        while changes := breaker.next_by_time(record, policy, at):
            for change in changes:
                evidence = (lease.event_id,) if lease is not None and change.move is breaker.Move.PROBE_LOST else ()
                emit.begin(f"{state.workspace_id}{US}{state.scope}@{change.at}/{change.move}", change.at)
                breaker_changed(state, change, evidence, emit)
                breaker_state(state, emit)
        emit.begin(cause, now, traceparent)

    def _call(self, state: ToolState, outcome: CallOutcome, at: int, rules: Rules, emit: Emitter) -> None:
        record = state.breaker
        state.kind, state.plugin_name = outcome.kind, outcome.plugin_name
        if outcome.class_declared:
            record.tool_class = outcome.tool_class
        if not record.since:
            record.since = at
        policy = breaker_policy(rules.breakers, state.scope, record.tool_class)
        is_tool = state.scope.startswith("tool:")
        if record.mode != "disabled":
            leased = record.lease
            if is_tool and outcome.kind:
                changes = breaker.fold_call_of_service(record, outcome, policy, at)
            else:
                key = _digest_of(outcome.fine_key) if is_tool and state.keyed else 0
                changes = breaker.fold_call(record, outcome, policy, at, key=key)
            for change in changes:
                breaker_changed(state, change, (outcome.cause,), emit)
            if changes or record.lease is not leased:
                breaker_state(state, emit)
        if state.scope.startswith("tier:"):
            return
        self._judge_trust(state, outcome, at, rules, emit)
        if is_tool:
            _learn(state, outcome, at, rules, emit)
            own_rule = self._rule("tool", outcome)
            counted = outcome.verdict == "failure" and trust.is_counted(outcome, own_rule)
            standing.after_call(state, outcome, at, rules.fleet, emit, counted=counted)

    def _judge_trust(self, state: ToolState, outcome: CallOutcome, at: int, rules: Rules, emit: Emitter) -> None:
        """Fold a call into the record of the scope, then into that of its fine key."""
        whole = state.trust
        if whole is None:
            whole = state.trust = _own_record(state)
        rule, key_rule = self._rule(whole.scope, outcome), self._rule("key", outcome)
        narrow = _narrow(state, whole, outcome, rules, at - key_rule.window_seconds * 1000, emit)
        record, kind = narrow.record, whole.scope
        mode = outcome.recovery_mode or rules.trust.recovery_mode
        worked = outcome.verdict == "success"
        expected = 0.0 if worked else rules.tools.expected_failure_rates.get(outcome.tool_name, 0.0)
        # The one key of an MCP server's tool lives with the server; its tool is followed for the fleet alone.
        hidden = kind == "tool" and narrow.elsewhere and outcome.kind == "mcp" and not whole.published
        if worked and trust.is_untroubled(whole, rule):
            trust.fold_untroubled_success(whole, at)
        else:
            judgement = trust.Judgement(
                rule,
                mode,
                narrowest=record is None and not (narrow.elsewhere or narrow.digest),
                key=narrow.digest if kind == "tool" and state.keyed else 0,
                expected_rate=expected if kind == "tool" else 0.0,
            )
            self._fold_trust(state, whole, outcome, judgement, at, emit, hidden=hidden)
        if record is None:
            return
        if worked and trust.is_untroubled(record, key_rule):
            trust.fold_untroubled_success(record, at)
        else:
            judgement = trust.Judgement(key_rule, mode, expected_rate=expected)
            wider = None if hidden else Wider(whole, told=rule.notify_user)
            self._fold_trust(state, record, outcome, judgement, at, emit, wider=wider)

    def _fold_trust(
        self,
        state: ToolState,
        record: TrustRecord,
        outcome: CallOutcome,
        judgement: trust.Judgement,
        at: int,
        emit: Emitter,
        *,
        wider: Wider | None = None,
        hidden: bool = False,
    ) -> None:
        rule = judgement.rule
        shown = trust.shown(record)
        moved = trust.fold_call(record, outcome, judgement, at)
        if hidden:
            return
        for move in moved:
            trust_changed(state, record, move, rule, outcome, emit, wider)
        lapsed = record.published and trust.forget_lapsed(record, rule, at)
        if moved or lapsed or shown != trust.shown(record):
            trust_state(state, record, rule, at, emit)

    def _rule(self, scope: str, outcome: CallOutcome) -> EscalationRule:
        assert self._book is not None  # noqa: S101 - set by fold before any record is touched
        return self._book.trust_rule(scope, outcome)

    def _probe(self, state: ToolState, request: ProbeRequest, at: int, rules: Rules, emit: Emitter) -> None:
        policy = breaker_policy(rules.breakers, state.scope, state.breaker.tool_class)
        answer = breaker.request_probe(state.breaker, policy, request, at)
        probe_answered(state, request, answer, emit)
        if answer.granted and state.breaker.lease is not None:
            breaker_state(state, emit)

    def _command(self, state: ToolState, event: cmd.Command, at: int, rules: Rules, emit: Emitter) -> None:
        kind = str(type(event).__struct_config__.tag)
        if kind in _TRUST_MOVES:
            until = 0
            if isinstance(event, cmd.TrustApprove):
                until = at + int((APPROVAL_S if event.expires_in_s is None else event.expires_in_s) * 1000)
            self._trust_command(state, event.key, _Order(kind, event.id, until), at, emit)
            standing.after_order(state, event.id, rules.fleet, emit)
            return
        if isinstance(event, cmd.QualityMark):
            quality.mark(state, event, at, rules.quality, emit)
            return
        if isinstance(event, cmd.QualityRestore):
            quality.restore(state, event, at, rules.quality, emit)
            return
        record = state.breaker
        if not record.since:
            record.since = at
        policy = breaker_policy(rules.breakers, state.scope, record.tool_class)
        changes: list[breaker.Change] = []
        if isinstance(event, cmd.BreakerForceOpen):
            record.mode = "enforce"
            changes = breaker.move(record, breaker.Move.FORCE_OPEN, policy, at)
            record.open_until = at + int(event.duration_s * 1000) if event.duration_s else 0
        elif isinstance(event, cmd.BreakerClose):
            record.mode = "enforce"
            changes = breaker.move(record, breaker.Move.RESET, policy, at)
            breaker.clean(record)
        elif isinstance(event, cmd.BreakerDisable):
            record.mode = "disabled"
            changes = breaker.move(record, breaker.Move.DISABLE, policy, at)
            breaker.clean(record)
        elif isinstance(event, cmd.BreakerObserve):
            record.mode = "observe"
        for change in changes:
            breaker_changed(state, change, (event.id,), emit)
        breaker_state(state, emit)

    def _trust_command(self, state: ToolState, name: str, order: _Order, at: int, emit: Emitter) -> None:
        """Apply an order to the key it names; an order for a scope as a whole reaches its fine keys too."""
        kind, _, own = state.scope.partition(":")
        whole = has_scope(name) or unescape(name) == own
        if whole and state.trust is None and order.move is trust.Move.REMOVE:
            state.trust = _own_record(state)
        if not whole and kind == "service" and name not in state.fine:
            tool = tool_of_key(name)
            _pass_on(state, f"tool:{tool}", tool, order, at, emit, name)
        if _is_new_fine_key(state, name) and order.move is trust.Move.REMOVE:
            state.fine[name] = TrustRecord(key=name, scope="key")
        # An order about a key that was never seen, and that it would leave as it is, creates nothing.
        records = [state.fine[name]] if name in state.fine else []
        if whole:
            records = [record for record in (state.trust, *state.fine.values()) if record is not None]
            for service in state.services:
                _pass_on(state, f"service:{service}", own, order, at, emit)
        self._move_all(state, records, order, at, emit, whole=whole)

    def _passed_on(self, state: ToolState, event: TrustOrder, at: int, emit: Emitter) -> None:
        """Apply an order that another state has passed on: for a tool as a whole, or for a key of an older version."""
        order = _Order(event.order, event.cause, event.until_ms)
        if not event.key:
            mine = [record for record in state.fine.values() if tool_of_key(record.key) == event.tool_name]
            self._move_all(state, mine, order, at, emit, whole=True)
            return
        old = state.fine.pop(event.key, None)
        if old is None or order.move is trust.Move.REMOVE:  # the service holds the key from now on, and tells so
            return
        self._move_all(state, [old], order, at, emit, whole=False)
        if old.state is not TrustState.TRUSTED:
            state.fine[event.key] = old

    def _use_up(self, state: ToolState, outcome: CallOutcome, at: int, emit: Emitter) -> None:
        """End the approvals by which a call has passed, at every key that they were given for."""
        for record in (state.trust, *state.fine.values()):
            if record is not None and trust.use_up(record, outcome.approvals):
                trust_state(state, record, self._rule(record.scope, outcome), at, emit)

    def _move_all(
        self,
        state: ToolState,
        records: list[TrustRecord],
        order: _Order,
        at: int,
        emit: Emitter,
        *,
        whole: bool,
    ) -> None:
        """Apply an order to records; one for a whole scope leaves trusted fine keys alone, unless it is a reset."""
        kind, _, own = state.scope.partition(":")
        move, cause = order.move, order.cause
        for record in records:
            wide = record is state.trust
            if whole and record.state is TrustState.TRUSTED and not wide and move is not trust.Move.RESET:
                continue
            name = own if kind == "tool" else tool_of_key(record.key)
            outcome = CallOutcome(
                id=cause,
                time_ms=at,
                workspace_id=state.workspace_id,
                scope=state.scope,
                cause=cause,
                call_id="",
                tool_name=name,
                fine_key=record.key,
                verdict="neutral",
                plugin_name=state.plugin_name,
                service=own if kind == "service" and state.kind == "mcp" else "",
                domain=own if kind == "service" and state.kind == "domain" else "",
            )
            rule = self._rule(record.scope, outcome)
            before_publication = record.published
            changes = []
            if move is trust.Move.APPROVE:
                trust.approve(record, cause, order.until)
            else:
                changes = trust.command(record, move, rule, at)
            if not whole and move is trust.Move.REMOVE:
                record.part_of = ""  # that this very key is refused from now on is news
            if wide and state.kind == "mcp" and kind == "tool" and not before_publication and move not in _SEEN_ORDERS:
                continue  # followed for the fleet alone: nobody has seen it move
            for change in changes:
                trust_changed(state, record, change, rule, outcome, emit)
            trust_state(state, record, rule, at, emit)
