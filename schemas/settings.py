"""Settings of a scope as records: what a user, a workspace or a session overrides (docs/design/semantics.md#settings).

Order: environment > session > workspace > user > default. Every override is optional: absent or null inherits, an
explicit false wins. A record holds all of its scope's overrides and replaces the record before it; a tombstone on
the compacted `settings` topic clears the scope.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .fields import Name, Scope, Time, Version
from .vocabulary import ModelSwitchStrategy, NudgeLevel, RecoveryMode


class SettingsOverrides(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a scope sets; every field it leaves out is inherited.

    Attributes:
        nudge_enabled: whether models are spoken to at all.
        nudge_level: strongest nudge allowed.
        recovery_mode: whether trust comes back by itself or waits for the operator.
        model_switch_strategy: what is done when another model does better.
        pattern_detection_enabled: whether behaviour is watched.
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
    """The overrides of one scope, whole.

    Attributes:
        schema_version: "1.x".
        id: unique per record.
        time: when it was saved, RFC 3339 with an offset.
        scope: `user:ID` or `workspace:ID`; also the record key.
        overrides: what the scope sets.
        issued_by: who saved it.
        reason: why, in words.
    """

    schema_version: Version
    id: Name
    time: Time
    scope: Scope
    overrides: SettingsOverrides
    issued_by: Name | None = None
    reason: str | None = None
