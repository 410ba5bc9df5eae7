"""The tool stage: breaker, trust, models and quality of one tool, service or model tier in one workspace.

Folds each outcome into the circuit of its scope (`breaker`), into trust (`trust_scopes`), and for a tool into the
profiles of its models (`models`), its quality (`quality`) and the reports to the fleet (`fleet_report`). All of them
fold the same outcome, never each other's output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ...rules.rules import RuleSet
from ...schemas.codec import decode_command
from ...schemas.commands import (
    BreakerClose,
    BreakerDisable,
    BreakerForceOpen,
    BreakerObserve,
    Command,
    IncidentAcknowledge,
    QualityMark,
    QualityRestore,
    ToolRemove,
)
from ...schemas.events import epoch_ms
from ...schemas.outcomes import (
    DEFAULT_WORKSPACE,
    US,
    CallOutcome,
    Outcome,
    OutcomeBase,
    PatternSeen,
    ProbeRequest,
    ToolTimePassed,
    TrustOrder,
)
from ...schemas.vocabulary import BreakerMode, BreakerState, BreakerTrigger, TrustState
from ..calls.fingerprints import digest
from ..calls.keys import scope_of_key
from ..emitter import OutputEmitter
from ..stage import WEEK_MS, IdleRule, StateRetention, internal_decoder
from . import breaker, emitters, fleet_report, models, quality_score, trust_orders, trust_scopes
from .tool_state import MAX_ACKNOWLEDGED, AcknowledgedIncident, ToolFold, ToolState

MAX_RECENT_IDS = 64


class ToolStage:
    """Topology stage keyed by workspace and scope."""

    name = "tool"
    sources: ClassVar[Mapping[str, Callable[[bytes], Outcome | Command]]] = {
        "outcomes": internal_decoder(Outcome, "an outcome"),
        "commands": decode_command,
    }
    state_type = ToolState
    state_version = 2
    idle_rule: IdleRule = "key_idle_hours"
    by_arrival = False
    late_ms = WEEK_MS

    def envelope(self, event: Outcome | Command) -> tuple[str, str, int]:
        """State key, id and time of a record."""
        if isinstance(event, OutcomeBase):
            return f"{event.workspace_id}{US}{event.scope}", event.id, event.time_ms
        workspace = event.workspace_id or DEFAULT_WORKSPACE
        return f"{workspace}{US}{scope_of_key(event.key)}", event.id, epoch_ms(event.time)

    def scopes(self, state: ToolState, event: Outcome | Command) -> tuple[str, str, str]:
        """Workspace of the key and user of the call; the session part is empty, as no rules here are per session."""
        return state.workspace_id or self.envelope(event)[0].partition(US)[0], getattr(event, "user_id", ""), ""

    def fold(self, state: ToolState, event: Outcome | Command, at: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Fold one record; a repeated record changes nothing."""
        origin = event.origin if isinstance(event, OutcomeBase) else -1  # commands have none
        late, emit.late = emit.late, False
        if _is_repeated(state, event, origin):
            return
        if late:
            emit.count("late_outcomes")
        if not state.scope:
            state.workspace_id, _, state.scope = self.envelope(event)[0].partition(US)
        if isinstance(event, ToolRemove):
            trust_orders.check_room(state, event, rules)
        fold = ToolFold(state, at, rules, emit)
        if breaker.may_move_by_time(state.breaker):
            _catch_up(fold)
        if 0 < state.ages_at <= at:
            trust_scopes.age(fold)
        if isinstance(event, CallOutcome):
            _fold_call(fold, event)
        else:
            _fold_other(fold, event)
        _remember(state, event, origin)

    def is_appended(self, event: Outcome | Command) -> bool:
        """Always False: every event resets the key's idle time, `ToolTimePassed` included."""
        del event
        return False

    def retention(self, state: ToolState) -> StateRetention:
        """Part of an idle key's state that must be kept.

        A state may be forgotten when it no longer affects a later call: its circuit is closed and enforced, all its
        keys are trusted, and its counts lie far outside every window. Profiles of models are forgotten with it. State
        that an operator ordered, that asks about or stops calls, that ranks the tool below its registered quality, or
        that was reported to the fleet is kept without limit (docs/trust.md, Forgotten keys).
        """
        circuit = state.breaker
        if (
            circuit.state is not BreakerState.CLOSED
            or circuit.mode is not BreakerMode.ENFORCE
            or circuit.lease is not None
        ):
            return StateRetention.KEEP
        for record in trust_scopes.records(state):
            if record.state is not TrustState.TRUSTED or record.pending or record.denials:
                return StateRetention.KEEP
        # `services` is kept because commands about a tool are passed on to its keys at these services.
        if state.quality is not None or state.services:
            return StateRetention.KEEP
        if any(report is not None and report.reported_state for report in fleet_report.reports(state)):
            return StateRetention.KEEP
        return StateRetention.NOTIFY if _published_keys(state) else StateRetention.DROP

    def expire(self, state: ToolState, key: str, at: int, rules: RuleSet, emit: OutputEmitter) -> bool:
        """Emit tombstones for everything published of a forgotten state; returns False if the state must be kept."""
        del key, at, rules
        if self.retention(state) is StateRetention.KEEP:
            return False
        for published in _published_keys(state):
            emit.tombstone("state", published)
        return True

    def republish(self, state: ToolState, at: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Emit the public states of circuit, trust keys, quality and models that are not at their default."""
        fold = ToolFold(state, at, rules, emit)
        if state.breaker.published:
            emitters.breaker_state(fold)
        for record in trust_scopes.records(state):
            if record.published:
                trust_scopes.publish(fold, record, trust_scopes.rule_of(state, record, rules.trust))
        if state.quality is not None and state.quality.published:
            quality_score.publish_again(fold)
        models.publish_again(fold)
        for key in state.acknowledged:
            emitters.acknowledged_state(fold, key)

    def due_at(self, state: ToolState) -> int | None:
        """End of the probe's lease, of a forced opening, or of old evidence, milliseconds; None if none is pending."""
        due = breaker.due_at(state.breaker)
        return due if not state.ages_at else state.ages_at if due is None else min(due, state.ages_at)

    def due(self, state: ToolState, key: str, now: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Append a `ToolTimePassed` for the due time; it takes effect when it is read back."""
        del now, rules
        lease, due = state.breaker.lease, self.due_at(state)
        if due is not None:
            _append_time(state, key, due, emit, cause=lease.event_id if lease is not None else "")

    def append_timer(self, state: ToolState, key: str, at: int, emit: OutputEmitter) -> None:
        """Append a `ToolTimePassed` for a time in milliseconds; it takes effect when it is read back."""
        _append_time(state, key, at, emit)


def _append_time(state: ToolState, key: str, at: int, emit: OutputEmitter, *, cause: str = "") -> None:
    """Append a `ToolTimePassed` to the stage's own source topic."""
    passed = ToolTimePassed(
        id=f"{key}@{at}/time", time_ms=at, workspace_id=state.workspace_id, scope=state.scope, cause=cause
    )
    emit.record("outcomes", key, passed, passed.id, own_partition=True)


def _published_keys(state: ToolState) -> list[str]:
    """Published keys on the `state` topic; a tool as a whole and its calls without a fine key share one."""
    shown = dict.fromkeys(emitters.trust_key(state, one) for one in trust_scopes.records(state) if one.published)
    noted = [emitters.acknowledged_key(state, key) for key in state.acknowledged]
    return [*shown, *models.published_keys(state), *noted]


def _is_repeated(state: ToolState, event: Any, origin: int) -> bool:
    """Whether a record was folded before, recognised by its origin if it comes from `events`, else by its id."""
    if origin >= 0:
        return origin <= state.origins.get(event.origin_partition, -1)
    return digest(event.id.encode()) in state.recent_ids


def _remember(state: ToolState, event: Any, origin: int) -> None:
    """Remember a folded record; called after the fold, so that a record whose fold failed may be repeated."""
    if origin >= 0:
        state.origins[event.origin_partition] = origin
        return
    state.recent_ids.append(digest(event.id.encode()))
    del state.recent_ids[:-MAX_RECENT_IDS]


def _catch_up(fold: ToolFold) -> None:
    """Make and emit the circuit's due transitions, each at its due time and with an id derived from it."""
    state, emit, record = fold.state, fold.emit, fold.state.breaker
    policy = fold.rules.breakers.policy_for(state.scope, record.tool_class)
    cause, now, traceparent = emit.cause, emit.at, emit.traceparent
    lease = record.lease
    while changes := breaker.move_by_time(record, policy, fold.at):
        for change in changes:
            evidence = (lease.event_id,) if lease is not None and change.trigger is BreakerTrigger.PROBE_LOST else ()
            emit.begin(f"{state.workspace_id}{US}{state.scope}@{change.at}/{change.trigger}", change.at)
            _publish_circuit(fold, [change], evidence)
    emit.begin(cause, now, traceparent)


def _fold_call(fold: ToolFold, outcome: CallOutcome) -> None:
    """Fold a finished call into all parts of the scope's state."""
    state = fold.state
    state.kind, state.plugin_name = outcome.kind, outcome.plugin_name
    of_tool = state.scope.startswith("tool:")
    _fold_into_circuit(fold, outcome, of_tool=of_tool)
    if of_tool or not state.scope.startswith("tier:"):
        trust_scopes.fold_call(fold, outcome)
    if of_tool:
        if outcome.model:
            models.fold_call(fold, outcome)
        if state.quality is not None or outcome.verdict == "failure":
            quality_score.fold_call(fold, outcome)
    fleet_report.after_call(fold, outcome)
    if outcome.approvals:
        trust_scopes.use_up_approvals(fold, outcome)


def _fold_into_circuit(fold: ToolFold, outcome: CallOutcome, *, of_tool: bool) -> None:
    """Fold a finished call into the circuit of the scope."""
    state, record, at = fold.state, fold.state.breaker, fold.at
    breaker.note_call(record, outcome, at)
    policy = fold.rules.breakers.policy_for(state.scope, record.tool_class)
    leased = record.lease
    if of_tool and outcome.kind:
        changes = breaker.fold_call_of_service(record, outcome, policy, at)
    else:
        key = trust_scopes.digest_of(outcome.fine_key) if of_tool and state.keyed else 0
        changes = breaker.fold_call(record, outcome, policy, at, key=key)
    if changes or record.lease is not leased:
        _publish_circuit(fold, changes, (outcome.cause,))


def _publish_circuit(fold: ToolFold, changes: list[breaker.CircuitChange], evidence: tuple[str, ...]) -> None:
    """Emit the circuit's changes and its public state, and record whether it is published."""
    for change in changes:
        emitters.breaker_changed(fold, change, evidence)
    fold.state.breaker.published = emitters.breaker_state(fold)


def _fold_other(fold: ToolFold, event: Outcome | Command) -> None:
    """Fold a record other than a finished call."""
    match event:
        case ProbeRequest():
            _fold_probe_request(fold, event)
        case PatternSeen():
            models.fold_pattern(fold, event)
        case TrustOrder():
            trust_orders.apply_forwarded(fold, event)
        case ToolTimePassed() | CallOutcome():
            return  # `_catch_up` has already made the due transitions
        case QualityMark():
            quality_score.mark(fold, event)
        case IncidentAcknowledge():
            _acknowledge(fold, event)
        case QualityRestore():
            quality_score.restore(fold, event)
        case BreakerForceOpen() | BreakerClose() | BreakerDisable() | BreakerObserve():
            record = fold.state.breaker
            policy = fold.rules.breakers.policy_for(fold.state.scope, record.tool_class)
            record.published = True  # `state` may show a circuit that a lost changelog held
            _publish_circuit(fold, breaker.apply_command(record, event, policy, fold.at), (event.id,))
        case _:
            trust_orders.apply_command(fold, event)


def _acknowledge(fold: ToolFold, order: IncidentAcknowledge) -> None:
    """Keep and publish that an incident is acknowledged, as the newest, or that it is not any more."""
    noted = fold.state.acknowledged
    gone = [order.key] if noted.pop(order.key, None) and order.withdraw else []
    if not order.withdraw:
        noted[order.key] = AcknowledgedIncident(fold.at, order.severity, order.issued_by or "", order.size)
        emitters.acknowledged_state(fold, order.key)
        gone = list(noted)[:-MAX_ACKNOWLEDGED]
    for key in gone:
        noted.pop(key, None)
        fold.emit.tombstone("state", emitters.acknowledged_key(fold.state, key))


def _fold_probe_request(fold: ToolFold, request: ProbeRequest) -> None:
    """Grant or refuse the fleet's single probe, and emit the answer."""
    record = fold.state.breaker
    policy = fold.rules.breakers.policy_for(fold.state.scope, record.tool_class)
    answer = breaker.grant_probe(record, policy, request, fold.at)
    emitters.probe_answered(fold, request, answer)
    if answer.granted and record.lease is not None:
        _publish_circuit(fold, [], ())
