"""Detector of calls that come too early: a policy says tool A before tools B (docs/detection.md).

The required tool must have succeeded, in this turn or at most `within_turns` before it, or be in flight. A failed or
refused call of it satisfies nothing.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from ...rules.behaviour import filled
from ...rules.rules import BehaviourRules, Policy, Rules
from ...schemas.vocabulary import Pattern, PatternSeverity
from ..calls.fingerprints import digest
from ..emit import MAX_CAUSES
from . import avoidance
from .patterns import Sighting
from .state import MAX_POLICIES, OpenCall, Prerequisite, SessionState


def call_started(state: SessionState, call: OpenCall, event_id: str, rules: Rules) -> list[Sighting]:
    """A call starts: which policies it violates; each violation also names the tool that should have come first."""
    seen: list[Sighting | None] = []
    tool_name, at = call.tool_name, call.started_ms
    for name, policy in rules.policies.items():
        if not policy.enabled or not _gates(policy.before, policy.requires, tool_name):
            continue
        record = _record(state, name)
        if _is_met(state, record, policy):
            continue
        if not record.violations:
            record.since_ms = at
        record.violations += 1
        record.event_ids = [*record.event_ids[1 - MAX_CAUSES :], event_id]
        seen.append(_violation(name, policy, record, tool_name, rules.behaviour))
        seen.append(avoidance.name_tool(state, policy.requires, event_id, at, rules.behaviour))
    return [sighting for sighting in seen if sighting is not None]


def call_succeeded(state: SessionState, tool_name: str, rules: Rules) -> None:
    """A call succeeded: the policies that require its tool are met, and what was held against the model is over."""
    for name, policy in rules.policies.items():
        if policy.requires == tool_name:
            record = _record(state, name)
            record.met_turn = state.turn_index
            record.violations = 0
            record.event_ids = []


def forgive(state: SessionState) -> None:
    """The user spoke: violations are counted afresh; what has been met stays met."""
    for record in state.prerequisites.values():
        record.violations = 0
        record.event_ids = []


def policy_fingerprint(name: str) -> int:
    """What names a policy in the outputs about it."""
    return digest(name.encode())


def own_text(fingerprint: int, severity: PatternSeverity, rules: Rules) -> str:
    """The text that the policy of a fingerprint brings for its nudges; empty where it brings none."""
    policy = next((policy for name, policy in rules.policies.items() if policy_fingerprint(name) == fingerprint), None)
    return policy.texts.get(severity, policy.message) if policy is not None else ""


def _violation(
    name: str, policy: Policy, record: Prerequisite, tool_name: str, rules: BehaviourRules
) -> Sighting | None:
    severity = policy.step(record.violations, rules.prerequisite_violated)
    if not severity:
        return None
    action = policy.expected_action or f"call {policy.requires} first (policy {name})"
    if policy.expected_action:
        action = filled(action, tool_name=tool_name, count=record.violations, required_tool=policy.requires)
    return Sighting(
        Pattern.PREREQUISITE_VIOLATED, severity, policy_fingerprint(name), record.violations,
        [tool_name], record.event_ids, action, required_tool=policy.requires,
        since_ms=record.since_ms,
    )  # fmt: skip


def _record(state: SessionState, name: str) -> Prerequisite:
    record = state.prerequisites.get(name)
    if record is None:
        while len(state.prerequisites) >= MAX_POLICIES:  # policies come and go with the rules
            del state.prerequisites[next(iter(state.prerequisites))]
        record = state.prerequisites[name] = Prerequisite()
    return record


def _is_met(state: SessionState, record: Prerequisite, policy: Policy) -> bool:
    if any(call.tool_name == policy.requires for call in state.open_calls):
        return True
    if record.met_turn < 0:
        return False
    return not policy.within_turns or state.turn_index - record.met_turn <= policy.within_turns


@lru_cache(maxsize=4096)
def _gates(before: tuple[str, ...], requires: str, tool_name: str) -> bool:
    return tool_name != requires and any(fnmatchcase(tool_name, pattern) for pattern in before)
