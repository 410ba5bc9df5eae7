"""The tool stage: breaker, trust, models and quality of one tool, service or model tier in one workspace.

Folds each outcome into the circuit of its scope and into up to two trust records: the fine key's and the scope's own,
each with its own rule. Breaker and trust fold from the same outcome, never from each other's output (design 3).
"""

from __future__ import annotations

from typing import Any

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
    decode_outcome,
)
from ...schemas.rules import Rules
from ...schemas.vocabulary import TrustState
from ..calls.fingerprints import digest
from ..calls.keys import escape, has_scope, parse_key, tool_key, unescape
from ..emit import Emitter
from . import breaker, models, quality, standing, trust
from .decide import breaker_changed, breaker_state, probe_answered, trust_changed, trust_state
from .layers import RuleBook, breaker_policy
from .state import ToolState, TrustRecord

MAX_RECENT_IDS = 64

UNTRACKED = "untracked"
"""Counter of failures that counted in their tool's key alone, as the tool had its most fine keys (design 3, Keys)."""

MAX_BOOKS = 64
"""Sets of rules kept resolved by layer: as many as there are combinations of overriding scopes, and not more."""

_TRUST_MOVES: dict[type, trust.Move] = {
    cmd.TrustReset: trust.Move.RESET,
    cmd.TrustRecover: trust.Move.RECOVER,
    cmd.ToolRemove: trust.Move.REMOVE,
    cmd.ToolRestore: trust.Move.RESTORE,
}


def _own_record(state: ToolState) -> TrustRecord:
    """A clean trust record for the scope as a whole."""
    kind, _, own = state.scope.partition(":")
    return TrustRecord(key=tool_key(own) if kind == "tool" else state.scope, scope=kind)


def scope_of_key(key: str) -> str:
    """Scope whose state holds a trust or breaker key: `bash|command=rm` lives with `tool:bash`."""
    if has_scope(key):
        return key
    return f"tool:{unescape(parse_key(key)[0])}"


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


class ToolStage:
    """Stage of the topology that is keyed by workspace and scope."""

    name = "tool"
    sources = ("outcomes", "commands")
    state_type = ToolState
    state_version = 2

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
        elif isinstance(event, ProbeRequest):
            self._probe(state, event, at, rules, emit)
        elif isinstance(event, PatternSeen):
            models.fold_pattern(state, event, at, rules.models, emit)
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
        passed = TimePassed(
            id=f"{key}@{due}/time",
            time_ms=due,
            workspace_id=state.workspace_id,
            scope=state.scope,
            cause=record.lease.event_id if record.lease is not None else "",
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
        if record.mode != "disabled":
            leased = record.lease
            changes = breaker.fold_call(record, outcome, policy, at)
            for change in changes:
                breaker_changed(state, change, (outcome.cause,), emit)
            if changes or record.lease is not leased:
                breaker_state(state, emit)
        if state.scope.startswith("tier:"):
            return
        records = self._records(state, outcome, rules, emit)
        for trusted in records:
            rule = self._rule(trusted, outcome)
            if outcome.verdict == "success" and trust.is_untroubled(trusted, rule):
                trust.fold_session(trusted, outcome.session_id)
                continue
            shown = trust.shown(trusted)
            moved = trust.fold_call(trusted, outcome, rule, at, outcome.recovery_mode or rules.trust.recovery_mode)
            for move in moved:
                trust_changed(state, trusted, move, rule, outcome, emit)
            if moved or shown != trust.shown(trusted) or (trusted.published and trust.has_lapsed(trusted, rule, at)):
                trust_state(state, trusted, rule, at, emit)
        if state.scope.startswith("tool:"):
            _learn(state, outcome, at, rules, emit)
        counted = outcome.verdict == "failure" and trust.is_counted(outcome, self._rule(records[-1], outcome))
        standing.after_call(state, outcome, at, rules.fleet, emit, counted=counted)

    def _rule(self, record: TrustRecord, outcome: CallOutcome) -> Any:
        assert self._book is not None  # noqa: S101 - set by fold before any record is touched
        return self._book.trust_rule(outcome, for_service=record.scope == "service")

    def _records(self, state: ToolState, outcome: CallOutcome, rules: Rules, emit: Emitter) -> list[TrustRecord]:
        """Trust records an outcome counts in: the scope's own, and the fine key's where it differs."""
        if state.trust is None:
            state.trust = _own_record(state)
        records = [state.trust]
        fine_key = outcome.fine_key
        if not fine_key or fine_key == state.trust.key or state.trust.scope != "tool":
            return records
        fine = state.fine.get(fine_key)
        if fine is None:
            if outcome.verdict != "failure" or outcome.expected or fine_key == escape(outcome.tool_name):
                return records  # a fine key is remembered from its first failure on
            if len(state.fine) >= rules.trust.max_fine_keys:
                emit.count(UNTRACKED)
                return records
            fine = state.fine[fine_key] = TrustRecord(key=fine_key, scope="key")
        return [fine, *records]

    def _probe(self, state: ToolState, request: ProbeRequest, at: int, rules: Rules, emit: Emitter) -> None:
        policy = breaker_policy(rules.breakers, state.scope, state.breaker.tool_class)
        answer = breaker.request_probe(state.breaker, policy, request, at)
        probe_answered(state, request, answer, emit)
        if answer.granted and state.breaker.lease is not None:
            breaker_state(state, emit)

    def _command(self, state: ToolState, event: cmd.Command, at: int, rules: Rules, emit: Emitter) -> None:
        move = _TRUST_MOVES.get(type(event))
        if move is not None:
            self._trust_command(state, event, move, at, emit)
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

    def _trust_command(self, state: ToolState, event: Any, move: trust.Move, at: int, emit: Emitter) -> None:
        """Apply an order to the key it names; an order for the tool as a whole reaches its fine keys too."""
        assert self._book is not None  # noqa: S101 - set by fold before any record is touched
        name = event.key
        kind, _, own = state.scope.partition(":")
        whole = has_scope(name) or unescape(name) == own
        if state.trust is None and (whole and move is trust.Move.REMOVE):
            state.trust = _own_record(state)
        if _is_new_fine_key(state, name) and move is trust.Move.REMOVE:
            state.fine[name] = TrustRecord(key=name, scope="key")
        # An order about a key that was never seen, and that it would leave as it is, creates nothing.
        records = [state.fine[name]] if name in state.fine else []
        if whole:
            records = [record for record in (state.trust, *state.fine.values()) if record is not None]
        outcome = CallOutcome(
            id=event.id,
            time_ms=at,
            workspace_id=state.workspace_id,
            scope=state.scope,
            cause=event.id,
            call_id="",
            tool_name=own if kind == "tool" else "",
            fine_key=name,
            verdict="neutral",
            plugin_name=state.plugin_name,
            service=own if state.kind == "mcp" else "",
            domain=own if state.kind == "domain" else "",
        )
        for record in records:
            if record.state is TrustState.TRUSTED and record is not records[0] and move is not trust.Move.RESET:
                continue
            rule = self._rule(record, outcome)
            for change in trust.command(record, move, rule, at):
                trust_changed(state, record, change, rule, outcome, emit)
            trust_state(state, record, rule, at, emit)
