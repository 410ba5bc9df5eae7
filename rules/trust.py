"""When a key loses trust and how it earns it back, in a workspace and over all of them.

See docs/design/semantics.md#trust.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..schemas.vocabulary import RecoveryMode, Severity
from .fields import Count, Ratio, RulesBase, Seconds, Threshold, Wait

DEFAULT_FILTER = frozenset(
    {
        Severity.SERVER_ERROR,
        Severity.CRASH,
        Severity.CORRUPTION,
        Severity.SECURITY,
        Severity.PERMISSION,
        Severity.TIMEOUT,
        Severity.REPEATED_AUTH,
        Severity.INVALID_INPUT,
    }
)
"""Severities that count towards escalation unless a rule says otherwise (docs/design/semantics.md#trust)."""


class EscalationPatch(RulesBase, kw_only=True, frozen=True):
    """One layer of an escalation rule: only the fields it sets count. Field meanings: `EscalationRule`."""

    count_threshold: Threshold | UnsetType | None = UNSET
    consecutive_threshold: Count | UnsetType | None = UNSET
    rate_threshold: Ratio | UnsetType | None = UNSET
    rate_min_calls: Threshold | UnsetType = UNSET
    window_seconds: Seconds | UnsetType = UNSET
    severity_filter: frozenset[Severity] | UnsetType = UNSET
    escalation_duration_seconds: Seconds | UnsetType = UNSET
    cooldown_seconds: Wait | UnsetType = UNSET
    success_count_to_recover: Count | UnsetType = UNSET
    block_after: Count | UnsetType | None = UNSET
    notify_user: bool | UnsetType = UNSET


class EscalationRule(RulesBase, kw_only=True, frozen=True):
    """A complete rule: when a key loses trust and how it earns it back (docs/design/semantics.md#trust).

    Attributes:
        count_threshold: effective failures in the window that escalate; None switches the test off.
        consecutive_threshold: counted failures in a row that escalate; off by default.
        rate_threshold: share of failed calls in the window that escalates (reached, not exceeded); off by default.
        rate_min_calls: calls in the window before the rate means anything.
        window_seconds: how far back failures count.
        severity_filter: which failures count; the others are neutral.
        escalation_duration_seconds: earliest recovery after an escalation; doubled by a relapse, at most 24 h.
        cooldown_seconds: time without a counted failure before recovery may start.
        success_count_to_recover: successes that restore trust once recovery has started.
        block_after: counted failures without a success while escalated that block the key; None: never.
        notify_user: False marks the escalation silent; it is still emitted.
        model_error_weight: what one `invalid_input` failure counts (a model error, not the tool's).
        transient_weight: what one `transient` failure counts, where the filter has it (a rate limit passes).
    """

    count_threshold: Threshold | None = 3
    consecutive_threshold: Count | None = None
    rate_threshold: Ratio | None = None
    rate_min_calls: Threshold = 5
    window_seconds: Seconds = 3600
    severity_filter: frozenset[Severity] = DEFAULT_FILTER
    escalation_duration_seconds: Seconds = 1800
    cooldown_seconds: Wait = 900
    success_count_to_recover: Count = 3
    block_after: Count | None = 10
    notify_user: bool = True
    model_error_weight: Ratio = 0.5
    transient_weight: Ratio = 0.5

    def overlaid(self, patch: EscalationPatch) -> EscalationRule:
        """This rule with every field that the patch sets."""
        changes = {name: value for name in patch.__struct_fields__ if (value := getattr(patch, name)) is not UNSET}
        return msgspec.structs.replace(self, **changes) if changes else self


SERVICE_RULE = EscalationPatch(
    count_threshold=2,
    window_seconds=300,
    severity_filter=frozenset({Severity.TIMEOUT, Severity.SERVER_ERROR, Severity.CRASH}),
)
"""Shipped for MCP servers: two hard failures in five minutes (docs/trust.md#rules)."""


class Layers(NamedTuple):
    """Names by which a trust record and its call find their rule; an empty name has no layer.

    Attributes:
        scope: what the record stands for: `key`, `tool` or `service`.
        tool: name of the tool.
        domain: domain that the call went to.
        service: MCP server that the call went to.
        plugin: plugin that brought the tool.
    """

    scope: str
    tool: str = ""
    domain: str = ""
    service: str = ""
    plugin: str = ""


MAX_RESOLVED = 4096
"""Combinations of layers kept resolved."""

_DEFAULT = EscalationRule()


class TrustRules(RulesBase, kw_only=True, frozen=True, dict=True):
    """Escalation rules by layer, most specific first: tool, domain, service, plugin, default.

    `service_default` applies to every MCP server that no `service_rules` entry names.
    """

    default_rule: EscalationPatch = EscalationPatch()
    plugin_rules: dict[str, EscalationPatch] = {}
    service_default: EscalationPatch = SERVICE_RULE
    service_rules: dict[str, EscalationPatch] = {}
    domain_rules: dict[str, EscalationPatch] = {}
    tool_rules: dict[str, EscalationPatch] = {}
    recovery_mode: RecoveryMode = RecoveryMode.AUTO
    max_fine_keys: Count = 64

    def rule_for(self, layers: Layers) -> EscalationRule:
        """Escalation rule of a record: each layer sets only what it names (docs/trust.md, Rules)."""
        rule = self._resolved.get(layers)
        if rule is None:
            if len(self._resolved) >= MAX_RESOLVED:
                self._resolved.clear()
            rule = self._resolved[layers] = self._resolve(layers)
        return rule

    @cached_property
    def _resolved(self) -> dict[Layers, EscalationRule]:
        """Rules by layers, as far as they have been asked for: every record asks anew, and the answers are few."""
        return {}

    def _resolve(self, layers: Layers) -> EscalationRule:
        """Overlay the layers from the most general to the most specific: default, plugin, service, domain, tool.

        A record is judged only by rules of its own scope: a tool as a whole by default, plugin and tool; a service by
        default, service and domain; a fine key by all of them, but not by the rule shipped for services as a whole.
        `domain_rules` may name an MCP server, too.
        """
        scope, tool, domain, service, plugin = layers
        rule = _DEFAULT.overlaid(self.default_rule)
        if scope != "service" and plugin in self.plugin_rules:
            rule = rule.overlaid(self.plugin_rules[plugin])
        if scope != "tool":
            if service and scope == "service":
                rule = rule.overlaid(self.service_default)
            if service in self.service_rules:
                rule = rule.overlaid(self.service_rules[service])
            if (name := domain or service) in self.domain_rules:
                rule = rule.overlaid(self.domain_rules[name])
        if scope != "service" and tool in self.tool_rules:
            rule = rule.overlaid(self.tool_rules[tool])
        return rule


class FleetRules(RulesBase, kw_only=True, frozen=True):
    """When a tool that fails in several workspaces loses its user's trust in all (docs/design/semantics.md#promotion).

    Attributes:
        enabled: False promotes nothing.
        workspaces: workspaces of one user in which the tool is not trusted, before it is escalated for the user.
        failure_rate: mean share of failed calls over these workspaces that must be exceeded.
        min_calls: calls in the window below which a workspace does not count for a promotion.
        release_rate: mean share below which the escalation ends again.
        window_seconds: how far back calls count for these shares.
        duration_seconds: when an escalation ends by itself; only what is told after that counts for another one.

    Raises:
        ValueError: when an escalation would end at a share at which it begins.
    """

    enabled: bool = True
    workspaces: Annotated[int, Meta(ge=2, le=64)] = 3
    failure_rate: Ratio = 0.5
    min_calls: Count = 5
    release_rate: Ratio = 0.4
    window_seconds: Seconds = 3600
    duration_seconds: Seconds = 86_400

    def __post_init__(self) -> None:
        """Refuse a release above the promotion."""
        if self.release_rate > self.failure_rate:
            msg = f"release_rate {self.release_rate} must not be above failure_rate {self.failure_rate}"
            raise ValueError(msg)
