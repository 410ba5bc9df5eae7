"""Which rule applies to a key: most specific layer first, each setting only what it names (docs/trust.md, Rules)."""

from __future__ import annotations

from ...rules.rules import BreakerPolicy, BreakerRules, EscalationRule, Rules, TrustRules
from ...schemas.outcomes import CallOutcome
from ...schemas.vocabulary import ToolClass

_DEFAULT = EscalationRule()

MAX_RESOLVED = 4096
"""Combinations of layers kept resolved."""


class RuleBook:
    """Rules resolved once per combination of layers; a new book is made when the rules change."""

    def __init__(self, rules: Rules) -> None:
        """Wrap one set of rules."""
        self.rules = rules
        self._trust: dict[tuple[str, str, str, str, str], EscalationRule] = {}

    def trust_rule(self, scope: str, outcome: CallOutcome) -> EscalationRule:
        """Escalation rule of a record of a scope (`key`, `tool` or `service`) that judges a call."""
        layers = (scope, outcome.tool_name, outcome.domain, outcome.service, outcome.plugin_name)
        rule = self._trust.get(layers)
        if rule is None:
            if len(self._trust) >= MAX_RESOLVED:
                self._trust.clear()
            rule = self._trust[layers] = resolve(self.rules.trust, *layers)
        return rule


def resolve(rules: TrustRules, scope: str, tool: str, domain: str, service: str, plugin: str) -> EscalationRule:
    """Overlay the layers from the most general to the most specific: default, plugin, service, domain, tool.

    A record is judged only by rules of its own scope: a tool as a whole by default, plugin and tool; a service by
    default, service and domain; a fine key by all of them, but not by the rule shipped for services as a whole.
    `domain_rules` may name an MCP server, too.
    """
    rule = _DEFAULT.overlaid(rules.default_rule)
    if scope != "service" and plugin in rules.plugin_rules:
        rule = rule.overlaid(rules.plugin_rules[plugin])
    if scope != "tool":
        if service and scope == "service":
            rule = rule.overlaid(rules.service_default)
        if service in rules.service_rules:
            rule = rule.overlaid(rules.service_rules[service])
        if (name := domain or service) in rules.domain_rules:
            rule = rule.overlaid(rules.domain_rules[name])
    if scope != "service" and tool in rules.tool_rules:
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
