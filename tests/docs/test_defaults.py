"""The pages state every number of the shipped rules. Whoever changes a default is told here which lines to edit.

No other test states a default: stories are folded under `tests/support/fixed_rules.py`, or take the number from the
rules.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec import structs
from trustfold.rules import rules as shipped
from trustfold.rules.merging import plain
from trustfold.rules.rules import BreakerPolicy, RulesBase, SeverityLadder
from trustfold.schemas.vocabulary import PatternType

DOCS = Path(__file__).parents[2] / "docs"
SEMANTICS, TRUST, DETECTION, OPERATING = "design/semantics.md", "trust.md", "detection.md", "operating.md"

STATED = [
    # Default, page, and words of the page with the number: `n` itself, `percent`, or `minutes` for milliseconds.
    ("BreakerPolicy.consecutive_failures", SEMANTICS, "**Opening**: {n} failures in a row"),
    ("BreakerPolicy.rate_threshold", SEMANTICS, "or {percent} % of the last"),
    ("BreakerPolicy.rate_window_calls", SEMANTICS, "of the last {n} calls with"),
    ("BreakerPolicy.rate_min_calls", SEMANTICS, "with at least {n} measured"),
    ("BreakerPolicy.window_s", SEMANTICS, "all within {n} s"),
    ("BreakerPolicy.open_s", SEMANTICS, "`open_until` ({n} s)"),
    ("BreakerPolicy.backoff", SEMANTICS, "opens again for {n} times as long"),
    ("BreakerPolicy.backoff_cap", SEMANTICS, "up to {n} times `open_s`"),
    ("BreakerPolicy.close_after", SEMANTICS, "**Closing**: {n} probes in a row"),
    ("BreakerPolicy.lease_s", SEMANTICS, "its lease of {n} s ends"),
    ("RECURSIVE_POLICY.consecutive_failures", SEMANTICS, "`recursive`: {n} failures"),
    ("RECURSIVE_POLICY.open_s", SEMANTICS, "open for {n} s, closed by"),
    ("RECURSIVE_POLICY.close_after", SEMANTICS, "closed by {n} successful probe"),
    ("READ_ONLY_POLICY.consecutive_failures", SEMANTICS, "`read_only`: {n} failures"),
    ("READ_ONLY_POLICY.open_s", SEMANTICS, "failures, open for {n} s;"),
    ("MUTATING_POLICY.consecutive_failures", SEMANTICS, "`mutating`: {n} failures"),
    ("MUTATING_POLICY.rate_threshold", SEMANTICS, "failures or {percent} %"),
    ("EscalationRule.count_threshold", TRUST, "`count_threshold` calls failed | {n} |"),
    ("EscalationRule.count_threshold", TRUST, "Shipped: {n} failures in"),
    ("EscalationRule.rate_min_calls", TRUST, "`rate_min_calls` ({n})"),
    ("EscalationRule.window_seconds", TRUST, "failures in {n} s for all"),
    ("EscalationRule.escalation_duration_seconds", TRUST, "`escalation_duration_seconds` ({n})"),
    ("EscalationRule.cooldown_seconds", TRUST, "`cooldown_seconds` ({n}, "),
    ("EscalationRule.success_count_to_recover", TRUST, "`success_count_to_recover` ({n})"),
    ("EscalationRule.block_after", TRUST, "a dangerous command; {n} counted failures in a row"),
    ("EscalationRule.block_after", TRUST, "`exhausted`: {n} counted failures"),
    ("EscalationRule.model_error_weight", TRUST, "invalid_input with a weight of {n}."),
    ("EscalationRule.transient_weight", TRUST, "transient with a weight of {n},"),
    ("SERVICE_RULE.count_threshold", TRUST, "for all; {n} in"),
    ("SERVICE_RULE.window_seconds", TRUST, "in {n} s of transport"),
    ("SERVICE_RULE.transient_weight", TRUST, "a rate limit with a weight of {n}, for MCP"),
    ("PROGRAM_RULE.count_threshold", TRUST, "`service_default`); {n} in"),
    ("PROGRAM_RULE.window_seconds", TRUST, "in {n} s for services behind"),
    ("TrustRules.max_fine_keys", TRUST, "A state keeps {n} fine keys"),
    ("TrustRules.max_fine_keys", SEMANTICS, "has at most {n} fine keys"),
    ("FleetRules.workspaces", SEMANTICS, "not trusted in at least {n} of them"),
    ("FleetRules.min_calls", SEMANTICS, "with at least {n} calls each"),
    ("FleetRules.failure_rate", SEMANTICS, "failure rate above {n} within"),
    ("FleetRules.window_seconds", SEMANTICS, "within {n} s (`projections/fleet"),
    ("FleetRules.duration_seconds", SEMANTICS, "It ends after {n} s,"),
    ("FleetRules.release_rate", SEMANTICS, "with a margin ({n})"),
    ("BehaviourRules.window_steps", DETECTION, "call and result within {n} steps"),
    ("BehaviourRules.fast_poll_seconds", DETECTION, "faster than every {n} s;"),
    ("BehaviourRules.slow_poll_seconds", DETECTION, "once unchanged for {n} s"),
    ("BehaviourRules.restated_share", DETECTION, "({percent} % of their sequences"),
    ("BehaviourRules.max_silence_seconds", DETECTION, "{n} s of silence in an open turn"),
    ("CallRules.overdue_after_ms", DETECTION, "or else {minutes} minutes"),
    ("PrerequisitePolicy.within_turns", OPERATING, "0 is the whole session; {n} without it"),
    ("NudgeRules.cooldown_calls", SEMANTICS, "not nudged again for {n} calls"),
    ("NudgeRules.effective_within_calls", SEMANTICS, "does not repeat within {n} calls"),
    ("ModelRules.min_failures", SEMANTICS, "has at least {n} such failures"),
    ("ModelRules.min_difference", SEMANTICS, "differ by at least {n}."),
    ("QualityRules.registered_score", SEMANTICS, "it starts at {n}, or as"),
    ("RegisteredTool.score", SEMANTICS, "as registered (at {n} without a score;"),
    ("QualityRules.low", SEMANTICS, "A failure costs {n} (low)"),
    ("QualityRules.medium", SEMANTICS, "(low), {n} (medium)"),
    ("QualityRules.high", SEMANTICS, "or {n} (high)"),
    ("QualityRules.fifth", SEMANTICS, "from the fifth failure {n} more"),
    ("QualityRules.tenth", SEMANTICS, "from the tenth {n} more"),
    ("QualityRules.earned", SEMANTICS, "A success earns {n} back"),
    ("QualityRules.tag_after", SEMANTICS, "{n} failures that show that a tool"),
    ("QualityRules.tag_days", SEMANTICS, "for {n} days or until a success"),
    ("QualityRules.similar", SEMANTICS, "similarity of {n} or more"),
    ("QualityRules.demotion", SEMANTICS, "demotes by {n},"),
    ("QualityRules.half_life_days", SEMANTICS, "half as much every {n} days"),
    ("QualityRules.unavailable_after", SEMANTICS, "in its last {n} calls"),
    ("QualityRules.unavailable_seconds", SEMANTICS, "ranks behind the others for {n} s"),
    ("GuaranteeRules.max_cost_usd", SEMANTICS, "Limits of an execution: {n} US dollar"),
    ("GuaranteeRules.max_duration_seconds", SEMANTICS, "US dollar, {n} s,"),
    ("GuaranteeRules.max_recursive_calls", SEMANTICS, "s, {n} recursive calls"),
    ("GuaranteeRules.warn_at", SEMANTICS, "`guarantee.warned` at {percent} %"),
    ("ConfidenceRules.low", SEMANTICS, "confidence below {n} emits"),
    ("ConfidenceRules.consensus", SEMANTICS, "answers of {n} or more"),
    ("IdleRules.session_idle_hours", OPERATING, "`idle.session_idle_hours`, {n}, "),
    ("IdleRules.key_idle_hours", OPERATING, "`idle.key_idle_hours`, {n}, "),
    ("IdleRules.fleet_idle_hours", OPERATING, "`idle.fleet_idle_hours`, {n}, "),
    # Ladders: the row of each pattern, and those that share the row of another.
    *[(f"BehaviourRules.{pattern}", DETECTION, f"| `{pattern}` | {{n}} ") for pattern in PatternType],
    ("BehaviourRules.repetitive_calls_with_news", DETECTION, "with news between {n};"),
    ("BehaviourRules.repetitive_calls_with_effects", DETECTION, "with unknown effects between {n} |"),
    ("BehaviourRules.announce_no_action_in_turn", DETECTION, "within a turn {n} messages with a known phrase"),
    ("BehaviourRules.announce_no_action_by_structure", DETECTION, "or {n} that another message follows"),
]
NUMBER = r"((?:\d+×?|–)(?:, (?:\d+×?|–)){2}|\d+(\.\d+)?)"


KINDS = [kind for kind in vars(shipped).values() if isinstance(kind, type) and issubclass(kind, RulesBase)]
POLICIES = ("RECURSIVE_POLICY", "READ_ONLY_POLICY", "MUTATING_POLICY", "SERVICE_RULE", "PROGRAM_RULE")


def defaults() -> dict[str, float | SeverityLadder]:
    """Every number of the shipped rules by struct and field; of the named policies, what differs from `tool`."""
    found = {}
    for kind in KINDS:
        found |= {f"{kind.__name__}.{field.name}": field.default for field in structs.fields(kind)}
    for name in POLICIES:
        usual = structs.asdict(BreakerPolicy()) if name.endswith("_POLICY") else {}
        own = structs.asdict(getattr(shipped, name)).items()
        found |= {f"{name}.{field}": value for field, value in own if usual.get(field) != value}
    return {name: value for name, value in found.items() if type(value) in {int, float, SeverityLadder}}


def written(words: str, value: float | SeverityLadder) -> str:
    """Words of a page with a number."""
    if isinstance(value, SeverityLadder):
        times = "×" if "stalled" in words else ""
        steps = (value.minor, value.moderate, value.severe)
        return words.format(n=", ".join("–" if step is None else f"{step}{times}" for step in steps))
    return words.format(n=f"{value:.12g}", percent=f"{value * 100:.12g}", minutes=f"{value / 60_000:.12g}")


def test_the_pages_state_the_defaults() -> None:
    """Each default stands on its page; the message of a failure names the line and the words to write."""
    found, faults = defaults(), []
    for name, page, words in STATED:
        if name not in found:
            faults.append(f"rules/: no rule is called {name}")
            continue
        text = (DOCS / page).read_text()
        wanted = written(words, found[name])
        if wanted in text:
            continue
        before, after = re.split(r"\{\w+\}", words)
        older = re.search(re.escape(before) + NUMBER + re.escape(after), text)
        where = f"docs/{page}:{text[: older.start()].count(chr(10)) + 1}" if older else f"docs/{page}"
        if older:
            faults.append(f"{where}: {name} has another default: write {wanted!r}, not {older[0]!r}")
        else:
            faults.append(f"{where}: {name}: no line says {wanted!r}; add it, or change STATED if it was reworded")
    assert not faults, "\n".join(["", *faults])


def test_every_default_is_stated() -> None:
    """A new rule needs a line in STATED, and the words on a page."""
    stated, known = {name for name, *_ in STATED}, set(defaults())
    assert stated == known, f"not in STATED: {sorted(known - stated)}; in STATED, but no rule: {sorted(stated - known)}"


def test_every_default_is_a_value_that_a_file_may_set() -> None:
    """Python does not compare defaults with the bounds of their fields."""
    wholes = [kind() for kind in KINDS if not any(field.required for field in structs.fields(kind))]
    for rules in (*wholes, *(getattr(shipped, name) for name in POLICIES)):
        assert msgspec.convert(plain(rules), type(rules)) == rules
