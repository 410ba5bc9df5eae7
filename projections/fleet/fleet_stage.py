"""Fleet stage: folds over many workspaces or many sessions.

A key is a user's tool (promotion) or a model (behavioural profile). Both fold the `standings` records of the session
and the tool stage, never decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from ...rules.rules import FleetRules, RuleSet
from ...schemas.standings import ModelBehaved, Standing, StandingDue, ToolStanding
from ...schemas.vocabulary import TrustState
from ..emitter import OutputEmitter
from ..stage import WEEK_MS, IdleRule, StateRetention, internal_decoder
from . import promotion
from .emitters import model_state, user_trust_changed, user_trust_state
from .fleet_state import BehaviourCounts, FleetState, UserTrust, count_behaviour, is_publication_due, note_published


class FleetStage:
    """Stage of the topology that is keyed by user and tool, and by model."""

    name = "fleet"
    sources: ClassVar[Mapping[str, Callable[[bytes], Standing]]] = {
        "standings": internal_decoder(Standing, "a standing")
    }
    state_type = FleetState
    state_version = 1
    idle_rule: IdleRule = "fleet_idle_hours"
    by_arrival = False
    late_ms = WEEK_MS

    def envelope(self, event: Standing) -> tuple[str, str, int]:
        """Return state key, id and time of a standing."""
        return event.key, event.id, event.time_ms

    def scopes(self, state: FleetState, event: Standing) -> tuple[str, str, str]:
        """Return the user of the tool; a single workspace's settings do not apply to many workspaces."""
        if isinstance(event, ToolStanding):
            return "", event.user_id, ""
        return "", state.user.user_id if state.user is not None else "", ""

    def fold(self, state: FleetState, event: Standing, at: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Fold one standing; a repeated one after a crash changes nothing."""
        if event.origin >= 0 and event.origin <= state.origins.get(event.space, -1):
            return
        if state.user is not None:
            self._catch_up(state.user, event.key, at, rules.fleet, emit)
        if isinstance(event, ToolStanding):
            self._tool(state, event, at, rules.fleet, emit)
        elif isinstance(event, ModelBehaved):
            self._model(state, event, emit)
        if event.origin >= 0:  # timer records have no origin
            state.origins[event.space] = event.origin

    def is_appended(self, event: Standing) -> bool:
        """Always False: every event is activity of the key, timer records included."""
        del event
        return False

    def retention(self, state: FleetState) -> StateRetention:
        """Keep a tool that is escalated or untrusted in some workspace; a published model profile must be withdrawn."""
        user, model = state.user, state.model
        if user is not None and (user.state is not TrustState.TRUSTED or user.places):
            return StateRetention.KEEP
        changed = model is not None and (model.published_turns or model.published_counts)
        return StateRetention.NOTIFY if changed else StateRetention.DROP

    def expire(self, state: FleetState, key: str, at: int, rules: RuleSet, emit: OutputEmitter) -> bool:
        """Withdraw the profile of a forgotten model; return False if a tool must be kept."""
        del key, at, rules
        retention = self.retention(state)
        if retention is StateRetention.NOTIFY and state.model is not None:
            emit.tombstone("state", f"model:{state.model.model}")
        return retention is not StateRetention.KEEP

    def republish(self, state: FleetState, at: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Emit the escalation of a user's tool, and the published profile of a model."""
        user, model = state.user, state.model
        if user is not None and user.state is TrustState.ESCALATED and user.expires_at > at:
            user_trust_state(user, promotion.standing_change(user), rules.fleet, emit)
        if model is not None and (model.published_turns or model.published_counts):
            model_state(model, emit)

    def due_at(self, state: FleetState) -> int | None:
        """Return when a user's escalation expires."""
        return promotion.due_at(state.user) if state.user is not None else None

    def due(self, state: FleetState, key: str, now: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Append a timer record; it takes effect when it is read back."""
        del now, rules
        due = self.due_at(state)
        if due is not None:
            self.append_timer(state, key, due, emit)

    def append_timer(self, state: FleetState, key: str, at: int, emit: OutputEmitter) -> None:
        """Append a timer record; it takes effect when it is read back."""
        del state
        passed = StandingDue(id=f"{key}@{at}/due", time_ms=at, key=key)
        emit.record("standings", key, passed, passed.id, own_partition=True)

    def _catch_up(self, record: UserTrust, key: str, at: int, rules: FleetRules, emit: OutputEmitter) -> None:
        """Emit changes by time alone at their own time, under an id derived from it."""
        change = promotion.expire(record, rules, at)
        if change is None:
            return
        cause, now, traceparent = emit.cause, emit.at, emit.traceparent
        emit.begin(f"{key}@{change.at}/{change.trigger}", change.at)
        user_trust_changed(record, change, rules, emit)
        emit.begin(cause, now, traceparent)

    def _tool(self, state: FleetState, event: ToolStanding, at: int, rules: FleetRules, emit: OutputEmitter) -> None:
        record = state.user
        if record is None:
            record = state.user = UserTrust(event.user_id, event.tool_name, subject=event.subject)
        promotion.add_report(record, event, at)
        change = promotion.promote_or_demote(record, rules, at)
        if change is not None:
            user_trust_changed(record, change, rules, emit, session_id=event.session_id, cause=event.cause)

    def _model(self, state: FleetState, event: ModelBehaved, emit: OutputEmitter) -> None:
        if state.model is None:
            state.model = BehaviourCounts(event.model)
        count_behaviour(state.model, event)
        if is_publication_due(state.model):
            note_published(state.model)
            model_state(state.model, emit)
