"""Rules of trust: when a key loses it and how it recovers, in a workspace and over all of them.

See docs/design/semantics.md#trust.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..schemas.vocabulary import FailureSeverity, RecoveryMode
from .merging import Count, Ratio, RulesBase, Seconds, Threshold, Wait

DEFAULT_FILTER = frozenset(
    {
        FailureSeverity.SERVER_ERROR,
        FailureSeverity.CRASH,
        FailureSeverity.CORRUPTION,
        FailureSeverity.SECURITY,
        FailureSeverity.PERMISSION,
        FailureSeverity.TIMEOUT,
        FailureSeverity.REPEATED_AUTH,
        FailureSeverity.INVALID_INPUT,
    }
)
"""Severities that count towards escalation by default (docs/design/semantics.md#trust)."""


class EscalationPatch(RulesBase, kw_only=True, frozen=True):
    """Layer of an escalation rule: sets only some fields. Field meanings: `EscalationRule`."""

    count_threshold: Threshold | UnsetType | None = UNSET
    consecutive_threshold: Count | UnsetType | None = UNSET
    rate_threshold: Ratio | UnsetType | None = UNSET
    rate_min_calls: Threshold | UnsetType = UNSET
    window_seconds: Seconds | UnsetType = UNSET
    severity_filter: frozenset[FailureSeverity] | UnsetType = UNSET
    escalation_duration_seconds: Seconds | UnsetType = UNSET
    cooldown_seconds: Wait | UnsetType = UNSET
    success_count_to_recover: Count | UnsetType = UNSET
    block_after: Count | UnsetType | None = UNSET
    notify_user: bool | UnsetType = UNSET
    transient_weight: Ratio | UnsetType = UNSET
    unbroken: bool | UnsetType = UNSET


_THRESHOLDS: dict[str, int | float | bool | None] = {
    "count_threshold": None,
    "consecutive_threshold": None,
    "rate_threshold": None,
    "unbroken": False,
}
"""Thresholds, which a layer that sets one sets together, with their values where it does not name them."""


class EscalationRule(RulesBase, kw_only=True, frozen=True):
    """Complete escalation rule: when a key loses trust and how it recovers (docs/design/semantics.md#trust).

    Attributes:
        count_threshold: effective failures in the window that escalate; None disables the test.
        unbroken: `count_threshold` holds only without a success between the failures.
        consecutive_threshold: consecutive counted failures that escalate; off by default.
        rate_threshold: share of failed calls in the window that escalates (reached, not exceeded); off by default.
        rate_min_calls: minimum of calls in the window for the rate.
        window_seconds: seconds for which failures count.
        severity_filter: severities that count; the others are neutral.
        escalation_duration_seconds: seconds until the earliest recovery; doubled by a relapse, at most 24 h.
        cooldown_seconds: seconds without a counted failure before recovery may start.
        success_count_to_recover: successes after the start of recovery that restore trust.
        block_after: counted failures without a success while escalated that block the key; None: never.
        notify_user: False marks the escalation silent; it is still emitted.
        model_error_weight: weight of an `invalid_input` failure (an error of the model, not of the tool), and of an
            exception of a class that the tool defines itself.
        transient_weight: weight of a `transient` failure, if the filter includes it (a rate limit is temporary).
    """

    count_threshold: Threshold | None = 3
    consecutive_threshold: Count | None = None
    rate_threshold: Ratio | None = None
    rate_min_calls: Threshold = 5
    window_seconds: Seconds = 3600
    severity_filter: frozenset[FailureSeverity] = DEFAULT_FILTER
    escalation_duration_seconds: Seconds = 1800
    cooldown_seconds: Wait = 900
    success_count_to_recover: Count = 3
    block_after: Count | None = 10
    notify_user: bool = True
    model_error_weight: Ratio = 0.5
    transient_weight: Ratio = 0.5
    unbroken: bool = False

    def overlaid(self, patch: EscalationPatch) -> EscalationRule:
        """Return this rule with all fields that the patch sets; one that sets a threshold replaces all of them."""
        changes = {name: value for name in patch.__struct_fields__ if (value := getattr(patch, name)) is not UNSET}
        if any(name in changes for name in _THRESHOLDS if name != "unbroken"):
            changes = _THRESHOLDS | changes
        return msgspec.structs.replace(self, **changes) if changes else self


TRANSPORT = frozenset(
    {FailureSeverity.TIMEOUT, FailureSeverity.SERVER_ERROR, FailureSeverity.CRASH, FailureSeverity.TRANSIENT}
)
"""Severities that are evidence about a server, and not about what it answered."""

SERVICE_RULE = EscalationPatch(
    count_threshold=3, unbroken=True, window_seconds=300, severity_filter=TRANSPORT, transient_weight=1.0
)
"""Shipped rule of MCP servers: three failures of transport in five minutes, none of them answered between."""

DOMAIN_RULE = EscalationPatch(unbroken=True, severity_filter=TRANSPORT, transient_weight=1.0)
"""Shipped rule of domains: the same, within the window of all."""

PROGRAM_RULE = EscalationPatch(
    count_threshold=3,
    window_seconds=300,
    severity_filter=frozenset({FailureSeverity.SERVER_ERROR}),
    block_after=None,
)
"""Shipped rule of services behind a shell, which are observed: told at the third failure in five minutes."""


class RulesOfScopes(NamedTuple):
    """Rules of the records of one call, by scope.

    A record uses only layers of its own scope: a tool as a whole uses default, plugin and tool; a service uses default,
    service and domain; a fine key uses all of them, except the rule shipped for services as a whole.
    """

    key: EscalationRule
    tool: EscalationRule
    service: EscalationRule

    def of(self, scope: str) -> EscalationRule:
        """Return the rule of a scope's record."""
        return self.tool if scope == "tool" else self.service if scope == "service" else self.key


MAX_RESOLVED = 4096
"""Number of name combinations whose resolved rules are cached."""

_DEFAULT, _EMPTY = EscalationRule(), EscalationPatch()


class TrustRules(RulesBase, kw_only=True, frozen=True, dict=True):
    """Escalation rules by layer, most specific first: tool, domain, service, plugin, default.

    `service_default` applies to every MCP server, `domain_default` to every domain, `program_default` to every service
    behind a shell (`curl@localhost:8080`); `service_rules` may name servers and such services.
    """

    default_rule: EscalationPatch = EscalationPatch()
    plugin_rules: dict[str, EscalationPatch] = {}
    service_default: EscalationPatch = SERVICE_RULE
    domain_default: EscalationPatch = DOMAIN_RULE
    program_default: EscalationPatch = PROGRAM_RULE
    service_rules: dict[str, EscalationPatch] = {}
    domain_rules: dict[str, EscalationPatch] = {}
    tool_rules: dict[str, EscalationPatch] = {}
    recovery_mode: RecoveryMode = RecoveryMode.AUTO
    max_fine_keys: Count = 64

    def rules_for(
        self, tool: str, domain: str = "", service: str = "", plugin: str = "", *, observed: bool = False
    ) -> RulesOfScopes:
        """Return the escalation rules for calls of a tool; empty names have no layer (docs/trust.md, Rules).

        `observed`: the service is one behind a shell.
        """
        names = (tool, domain, service, plugin, observed)
        rules = self._resolved.get(names)
        if rules is None:
            if len(self._resolved) >= MAX_RESOLVED:
                self._resolved.clear()
            rules = self._resolved[names] = self._resolve(*names)
        return rules

    @cached_property
    def _resolved(self) -> dict[tuple[str, str, str, str, bool], RulesOfScopes]:
        """Cache of rules by names: every call looks them up, and there are few combinations."""
        return {}

    def _resolve(self, tool: str, domain: str, service: str, plugin: str, observed: bool) -> RulesOfScopes:  # noqa: FBT001
        """Merge the layers from the most general to the most specific: default, plugin, service, domain, tool.

        Each layer sets only some fields. `domain_rules` may name an MCP server, too.
        """
        default = _DEFAULT.overlaid(self.default_rule)
        of_plugin, of_tool = self.plugin_rules.get(plugin, _EMPTY), self.tool_rules.get(tool, _EMPTY)
        of_service = self.service_rules.get(service, _EMPTY)
        of_domain = self.domain_rules.get(domain or service, _EMPTY)
        shipped = self.program_default if observed else self.service_default if service else self.domain_default
        return RulesOfScopes(
            key=default.overlaid(of_plugin).overlaid(of_service).overlaid(of_domain).overlaid(of_tool),
            tool=default.overlaid(of_plugin).overlaid(of_tool),
            service=default.overlaid(shipped).overlaid(of_service).overlaid(of_domain),
        )


class FleetRules(RulesBase, kw_only=True, frozen=True):
    """Rules of promotion to a loss of trust in all workspaces of a user (docs/design/semantics.md#promotion).

    Attributes:
        enabled: False disables promotion.
        workspaces: number of a user's workspaces in which the tool is not trusted, from which it is escalated for the
            user.
        failure_rate: mean share of failed calls over these workspaces above which it is escalated.
        min_calls: minimum of calls in the window for a workspace to count.
        release_rate: mean share below which the escalation ends.
        window_seconds: seconds for which calls count for these shares.
        duration_seconds: seconds after which an escalation ends by itself; only later reports count for another one.

    Raises:
        ValueError: `release_rate` is above `failure_rate`.
    """

    enabled: bool = True
    workspaces: Annotated[int, Meta(ge=2, le=64)] = 3
    failure_rate: Ratio = 0.5
    min_calls: Count = 5
    release_rate: Ratio = 0.4
    window_seconds: Seconds = 3600
    duration_seconds: Seconds = 86_400

    def __post_init__(self) -> None:
        """Validate that the release rate is not above the failure rate."""
        if self.release_rate > self.failure_rate:
            msg = f"release_rate {self.release_rate} must not be above failure_rate {self.failure_rate}"
            raise ValueError(msg)
