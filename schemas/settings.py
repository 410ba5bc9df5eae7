"""Settings records: overrides of a user, a workspace or a session (docs/design/semantics.md#settings).

Precedence: environment > session > workspace > user > default. Every override is optional: absent or null inherits, an
    explicit false wins. A record holds all overrides of its scope and replaces the previous record; a tombstone on the
    compacted `settings` topic clears the scope.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .fields import Name, Scope, Time, Version
from .vocabulary import ModelSwitchStrategy, NudgeLevel, RecoveryMode


class SettingsOverrides(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Overrides of a scope; absent fields are inherited.

    Attributes:
        nudge_enabled: whether nudges are issued.
        nudge_level: strongest nudge allowed.
        recovery_mode: whether trust is restored automatically or by the operator.
        model_switch_strategy: reaction when another model has a better success rate.
        pattern_detection_enabled: whether patterns of behaviour are detected.
        rules: escalation, breaker and behaviour rules in the shape of the rules file; only the fields named count.
        policies: prerequisite policies by name (tool A before tools B, within N turns), in the shape of the rules file.
    """

    nudge_enabled: bool | None = None
    nudge_level: NudgeLevel | None = None
    recovery_mode: RecoveryMode | None = None
    model_switch_strategy: ModelSwitchStrategy | None = None
    pattern_detection_enabled: bool | None = None
    rules: dict[str, Any] | None = None
    policies: dict[str, Any] | None = None


class SettingsChanged(
    msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type", tag="settings.changed"
):
    """All overrides of one scope.

    Attributes:
        schema_version: version of the contract, "1.x".
        id: unique id of the record.
        time: time of the change, RFC 3339 with an offset.
        scope: `user:ID` or `workspace:ID`; also the record key.
        overrides: overrides of the scope.
        issued_by: person or program that saved it.
        reason: reason in words.
    """

    schema_version: Version
    id: Name
    time: Time
    scope: Scope
    overrides: SettingsOverrides
    issued_by: Name | None = None
    reason: str | None = None
