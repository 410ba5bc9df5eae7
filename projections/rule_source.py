"""Rules by scope: those of the file, with the overrides of user, workspace and session.

See docs/design/semantics.md#settings.

One source serves all processors of a worker. Without scope overrides a fold only checks `scoped`. Rules are resolved
once per distinct combination of overriding scopes; a change swaps rules between two batches and changes no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from ..errors import EventRejected, RejectReason
from ..rules.levels import Levels, SettingLevel, check, layered, set_by
from ..rules.older_shapes import RulesMisfit, shown
from ..rules.rules import RuleSet
from ..schemas.codec import decode_settings
from ..schemas.settings import SettingsOverrides
from .dead_letters import dead_letter

if TYPE_CHECKING:
    from .emitter import StageOutput
    from .stage import SourceRecord

TOPIC = "settings"

RULES_TOPIC = "rules"  # Name of records of rules and their offsets: in the embedded engine's log, and a topic on Kafka

RULES_TYPE = "rules.in_force"

MAX_RESOLVED = 1024  # Number of combinations of overrides kept resolved; the cache is cleared when it is full
MAX_SESSION_BYTES = 16_384  # Largest overrides of a session, as JSON in bytes: they are part of the session's state

_decode = msgspec.json.Decoder(SettingsOverrides).decode
_encode = msgspec.json.Encoder().encode


class RulesInForce(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Rules that apply to a log from an offset on, without scope overrides."""

    base: RuleSet = RuleSet()  # rules of the files, or the shipped ones
    environment: SettingsOverrides = SettingsOverrides()  # overrides of the environment


class RulesPlaced(RulesInForce, kw_only=True, frozen=True, omit_defaults=True, tag_field="type", tag=RULES_TYPE):
    """Record of the topic `rules`: rules of a partition of a source topic from an offset on."""

    id: str  # id of the record, equal for each repetition
    time: str  # time of the change, RFC 3339
    schema_version: str
    topic: str  # source topic, catalogue name
    partition: int  # partition of that topic
    offset: int  # first offset folded by these rules
    settings: dict[str, int] = {}  # included records of `settings`: next offset by partition


# Decode rules of a log (`RuleSource.in_force`); those of another version may raise a `msgspec.ValidationError`
rules_in_force = msgspec.json.Decoder(RulesInForce).decode


class RuleSource:
    """Rules by scope.

    Attributes:
        base: rules of the file, or the shipped ones.
        environment: overrides of the environment; they win over every scope.
        rules: rules without scope overrides.
        scoped: whether any user or workspace has overrides.
    """

    __slots__ = ("_resolved", "_scopes", "base", "changes", "environment", "rules", "scoped")

    def __init__(self, base: RuleSet | None = None, environment: SettingsOverrides | None = None) -> None:
        """Start without scope overrides."""
        self.base = base or RuleSet()
        self.environment = environment
        self._scopes: dict[str, SettingsOverrides] = {}
        self.changes = 0
        self._swap()

    def rebase(self, base: RuleSet) -> None:
        """Replace the base rules; effective from the next batch on."""
        self.base = base
        self._swap()

    def copy(self) -> RuleSource:
        """Return an independent copy."""
        made = RuleSource(self.base, self.environment)
        made.replace(self._scopes)
        return made

    def equals(self, other: RuleSource) -> bool:
        """Whether another source has the same rules, environment and overrides."""
        return (
            self.base == other.base
            and (self.environment or SettingsOverrides()) == (other.environment or SettingsOverrides())
            and self._scopes == other._scopes
        )

    def in_force(self) -> bytes:
        """Encode the rules and the environment's overrides for a log."""
        kept: bytes = _encode(RulesInForce(base=self.base, environment=self.environment or SettingsOverrides()))
        return kept

    def replace(self, scopes: Mapping[str, SettingsOverrides]) -> None:
        """Replace the overrides of all scopes by stored ones."""
        self._scopes = {scope: overrides for scope, overrides in scopes.items() if set_by(overrides)}
        self._forget()

    def set(self, scope: str, overrides: SettingsOverrides | None) -> None:
        """Set the overrides of one scope, `user:ID` or `workspace:ID`; None or empty overrides clear it.

        Raises:
            RulesMisfit: the overrides are invalid; the previous ones are kept.
        """
        if overrides is None or not set_by(overrides):
            self._scopes.pop(scope, None)
        else:
            check(SettingLevel(scope.partition(":")[0]), overrides, self.rules)
            self._scopes[scope] = overrides
        self._forget()

    def fold(self, record: SourceRecord, partition: int) -> StageOutput | None:
        """Apply one record of the `settings` topic; return its dead letter if it is invalid."""
        key = (record.key or b"").decode(errors="replace")
        try:
            if record.value is None:
                self.set(key, None)
                return None
            changed = decode_settings(record.value)
            if key and key != changed.scope:
                raise EventRejected(  # noqa: TRY301 - like what the decoder raises
                    RejectReason.BAD_VALUE, "$.scope", f"the record key is {key!r}; it must be the scope"
                )
            self.set(changed.scope, changed.overrides)
        except EventRejected as rejected:
            return dead_letter(record, TOPIC, partition, rejected)
        except RulesMisfit as misfit:
            return dead_letter(record, TOPIC, partition, rejected_overrides(misfit, "$.overrides"))
        return None

    def of(self, workspace: str, user: str, session: str = "") -> RuleSet:
        """Return the rules for a workspace, a user and a session's overrides (as of `session_overrides`)."""
        workspace, user = f"workspace:{workspace}", f"user:{user}"
        known = self._scopes
        key = (workspace if workspace in known else "", user if user in known else "", session)
        rules = self._resolved.get(key)
        if rules is None:
            if len(self._resolved) >= MAX_RESOLVED:
                self._resolved.clear()
            rules = self._resolved[key] = layered(self.base, self._levels(*key))
        return rules

    def levels(self, workspace: str, user: str, session: str = "") -> Levels:
        """Return the overrides of each level for a workspace, a user and a session."""
        return self._levels(f"workspace:{workspace}", f"user:{user}", session)

    def scopes(self) -> dict[str, SettingsOverrides]:
        """Return the overrides of each scope; scopes without any are left out."""
        return dict(self._scopes)

    def _levels(self, workspace: str, user: str, session: str) -> Levels:
        return {
            SettingLevel.ENVIRONMENT: self.environment,
            SettingLevel.SESSION: _decode(session) if session else None,
            SettingLevel.WORKSPACE: self._scopes.get(workspace),
            SettingLevel.USER: self._scopes.get(user),
        }

    def _swap(self) -> None:
        self.rules = layered(self.base, {SettingLevel.ENVIRONMENT: self.environment})
        self._forget()

    def _forget(self) -> None:
        self._resolved: dict[tuple[str, str, str], RuleSet] = {}
        self.scoped = bool(self._scopes)
        self.changes += 1


def fingerprint(rules: RulesInForce) -> str:
    """Return a short digest of rules and environment overrides; equal in every process."""
    kept = msgspec.json.encode(RulesInForce(base=rules.base, environment=rules.environment), order="deterministic")
    return blake2b(kept, digest_size=6).hexdigest()


def source_of(rules: RuleSet | RuleSource) -> RuleSource:
    """Return a source; plain rules become one without scope overrides."""
    return rules if isinstance(rules, RuleSource) else RuleSource(rules)


def session_overrides(overrides: SettingsOverrides, rules: RuleSet) -> str:
    """Encode a session's overrides for its state: JSON of the set fields; empty without any."""
    if not set_by(overrides):
        return ""
    try:
        check(SettingLevel.SESSION, overrides, rules)
    except RulesMisfit as misfit:
        raise rejected_overrides(misfit, "$.settings") from misfit
    kept: bytes = _encode(overrides)
    if len(kept) > MAX_SESSION_BYTES:
        raise EventRejected(
            RejectReason.BAD_LENGTH,
            "$.settings",
            f"{len(kept)} bytes of overrides, at most {MAX_SESSION_BYTES}; save them for the workspace",
        )
    return kept.decode()


def rejected_overrides(misfit: RulesMisfit, above: str) -> EventRejected:
    """Return the rejection of a record with invalid overrides."""
    where = shown(misfit.path)
    return EventRejected(RejectReason.BAD_VALUE, f"{above}.{where}" if where else above, misfit.what)
