"""Which rule applies to a key: most specific layer first, each setting only what it names (design 3, Trust)."""

from __future__ import annotations

from ...schemas.outcomes import CallOutcome
from ...schemas.rules import (
    BreakerPolicy,
    BreakerRules,
    EscalationRule,
    Rules,
    TrustRules,
)
from ...schemas.vocabulary import ToolClass

_DEFAULT = EscalationRule()

MAX_RESOLVED = 4096
"""Combinations of layers kept resolved."""


class RuleBook:
    """Rules resolved once per combination of layers; a new book is made when the rules change."""

    def __init__(self, rules: Rules) -> None:
        """Wrap one set of rules."""
        self.rules = rules
        self._trust: dict[tuple[str, str, str, str, bool], EscalationRule] = {}

    def trust_rule(self, outcome: CallOutcome, *, for_service: bool) -> EscalationRule:
        """Escalation rule of a tool's key, or of its service as a whole."""
        tool = "" if for_service else outcome.tool_name
        key = (tool, outcome.domain, outcome.service, outcome.plugin_name, for_service)
        rule = self._trust.get(key)
        if rule is None:
            rule = self._trust[key] = resolve(self.rules.trust, *key[:4], for_service=for_service)
            if len(self._trust) > MAX_RESOLVED:
                self._trust = {key: rule}
        return rule


def resolve(
    rules: TrustRules, tool: str, domain: str, service: str, plugin: str, *, for_service: bool = False
) -> EscalationRule:
    """Overlay the layers from the most general to the most specific: default, plugin, service, domain, tool.

    The shipped service rule judges a service as a whole; a tool's own key takes only rules that name its service.
    """
    rule = _DEFAULT.overlaid(rules.default_rule)
    if plugin in rules.plugin_rules:
        rule = rule.overlaid(rules.plugin_rules[plugin])
    if service:
        if for_service:
            rule = rule.overlaid(rules.service_default)
        if service in rules.service_rules:
            rule = rule.overlaid(rules.service_rules[service])
    if domain in rules.domain_rules:
        rule = rule.overlaid(rules.domain_rules[domain])
    if tool in rules.tool_rules:
        rule = rule.overlaid(rules.tool_rules[tool])
    return rule


def breaker_policy(rules: BreakerRules, scope: str, declared_class: str) -> BreakerPolicy:
    """Policy of a circuit: by name, by declared tool class, by kind of scope."""
    named = rules.by_scope.get(scope)
    if named is not None:
        return named
    if scope.startswith("tier:"):
        return rules.recursive
    if declared_class == ToolClass.READ:
        return rules.read_only
    if declared_class == ToolClass.ACTION:
        return rules.mutating
    return rules.tool
