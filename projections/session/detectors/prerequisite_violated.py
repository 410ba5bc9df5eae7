"""Detector of calls made before the tool that a policy requires first.

The required tool must be in flight, or must have succeeded in this turn or at most `within_turns` turns earlier. A
failed or refused call of it does not satisfy the policy.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from ....rules.behaviour import filled
from ....rules.rules import PrerequisitePolicy, RuleSet
from ....schemas.vocabulary import PatternType
from ...calls.fingerprints import digest
from ...emitter import MAX_CAUSES
from ..records import SEVERITIES, ActivePattern, CallRecord, EventContext, PatternSighting, SessionRecord
from .detector import PatternDetector
from .tool_avoidance import ToolAvoidance

MAX_POLICIES = 256


class PrerequisiteState(msgspec.Struct, array_like=True):
    """State of one policy in a session."""

    met_turn: int = -1  # turn of the latest success of the required tool; -1 never
    violations: int = 0  # number of violations since that success, or since the last user message
    event_ids: list[str] = []
    since_ms: int = 0  # time of the first of these violations, milliseconds


class PrerequisiteViolated(PatternDetector, array_like=True):
    """Detector of calls made before the tool that a policy wants first.

    Holds when a call of a tool in `before` starts and the required tool has not succeeded within the policy's turns.
    It is guidance at most, unless the policy says `interrupts`.

    Ends with a success of the required tool.

    Known false alarms: those of the policy.
    """

    pattern = PatternType.PREREQUISITE_VIOLATED
    ends_with = "a success of the tool that the policy wants first"
    texts = (
        "{required_tool} comes before {tool_name} here. Please call {required_tool} first.",
        "{tool_name} was called {count} times without {required_tool}. Call {required_tool} before you go on.",
        "Stopped after {count} calls of {tool_name} without {required_tool}. Make no further calls. Say what you tried "
        "and what you need.",
    )
    of_session = True
    reported = 2
    wants_action = True

    policies: dict[str, PrerequisiteState] = {}  # state of each policy, by name

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether a success of the required tool has reset the violations."""
        del ctx
        return not any(
            record.violations and policy_fingerprint(name) == active.fingerprint
            for name, record in self.policies.items()
        )

    @classmethod
    def template(cls, active: ActivePattern, severity: int, strength: int, rules: RuleSet) -> str:
        """Text of a nudge with placeholders: the policy's, else the operator's, else its own."""
        of_policy = (
            policy.texts.get(SEVERITIES[severity - 1], policy.message)
            for name, policy in rules.policies.items()
            if policy_fingerprint(name) == active.fingerprint
        )
        return next(of_policy, "") or super().template(active, severity, strength, rules)

    def on_call(self, call: CallRecord, ctx: EventContext) -> None:
        """Count the policies that the call violates; each violation also counts for `ToolAvoidance`."""
        if not ctx.rules.policies:
            return
        for name, policy in ctx.rules.policies.items():
            if not policy.enabled or not _gates(policy.before, policy.requires, call.tool_name):
                continue
            record = self._record(name)
            if _is_met(ctx.state, record, policy):
                continue
            if not record.violations:
                record.since_ms = call.started_ms
            record.violations += 1
            record.event_ids = [*record.event_ids[1 - MAX_CAUSES :], ctx.emit.cause]
            severity = policy.step(record.violations, ctx.rules.behaviour.prerequisite_violated)
            if severity:
                ctx.sightings.append(_sighting(name, policy, record, call.tool_name, severity))
            ctx.state.detector(ToolAvoidance).name(policy.requires, call.started_ms, ctx)

    def on_success(self, tool_name: str, ctx: EventContext) -> None:
        """Mark the policies that require the tool as met, and reset their violations."""
        for name, policy in ctx.rules.policies.items():
            if policy.requires == tool_name:
                record = self._record(name)
                record.met_turn = ctx.state.turn.index
                record.violations = 0
                record.event_ids = []

    def on_user(self, ctx: EventContext) -> None:
        """Reset the violations; policies that are met stay met."""
        del ctx
        for record in self.policies.values():
            record.violations = 0
            record.event_ids = []

    def _record(self, name: str) -> PrerequisiteState:
        record = self.policies.get(name)
        if record is None:
            while len(self.policies) >= MAX_POLICIES:  # policies may be added and removed with the rules
                del self.policies[next(iter(self.policies))]
            record = self.policies[name] = PrerequisiteState()
        return record


def policy_fingerprint(name: str) -> int:
    """Fingerprint of a policy in the outputs about it."""
    return digest(name.encode())


def _sighting(
    name: str, policy: PrerequisitePolicy, record: PrerequisiteState, tool_name: str, severity: int
) -> PatternSighting:
    action = policy.expected_action or f"call {policy.requires} first (policy {name})"
    if policy.expected_action:
        action = filled(action, tool_name=tool_name, count=record.violations, required_tool=policy.requires)
    return PatternSighting(
        PrerequisiteViolated.pattern, severity, policy_fingerprint(name), record.violations, [tool_name],
        record.event_ids, action, required_tool=policy.requires, since_ms=record.since_ms, proven=policy.interrupts,
    )  # fmt: skip


def _is_met(state: SessionRecord, record: PrerequisiteState, policy: PrerequisitePolicy) -> bool:
    if any(call.tool_name == policy.requires for call in state.open_calls):
        return True
    if record.met_turn < 0:
        return False
    return not policy.within_turns or state.turn.index - record.met_turn <= policy.within_turns


@lru_cache(maxsize=4096)
def _gates(before: tuple[str, ...], requires: str, tool_name: str) -> bool:
    return tool_name != requires and any(fnmatchcase(tool_name, pattern) for pattern in before)
