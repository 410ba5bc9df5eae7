"""Which rules hold for a key: the file's, with what its user, workspace and session override.

See docs/design/semantics.md#settings.

One source for all processors of a worker. While no scope overrides anything a fold costs nothing more than a look at
`scoped`. Rules are resolved once per distinct combination of overriding scopes; a change swaps rules between two
batches and touches no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from ..errors import EventRejected, RejectReason
from ..rules.levels import Level, Levels, check, layered, set_by
from ..rules.older_shapes import Misfit, shown
from ..rules.rules import Rules
from ..schemas.codec import decode_settings
from ..schemas.settings import SettingsOverrides
from .dead_letters import dead_letter

if TYPE_CHECKING:
    from .emitter import Output
    from .stage import SourceRecord

TOPIC = "settings"

RULES_TOPIC = "rules"
"""Which rules held from where on: a name in the embedded engine's log, and a topic on Kafka."""

RULES_TYPE = "rules.in_force"

MAX_RESOLVED = 1024
"""Combinations of overrides kept resolved; more than that and they are resolved again."""

MAX_SESSION_BYTES = 16_384
"""Most that a session may override, as JSON: it is part of the session's state."""

_decode = msgspec.json.Decoder(SettingsOverrides).decode
_encode = msgspec.json.Encoder().encode


class RulesInForce(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a log holds from one place on, beside what scopes override.

    Attributes:
        base: rules of the files, or the shipped ones.
        environment: what the environment overrode.
    """

    base: Rules = Rules()
    environment: SettingsOverrides = SettingsOverrides()


class RulesPlaced(RulesInForce, kw_only=True, frozen=True, omit_defaults=True, tag_field="type", tag=RULES_TYPE):
    """A record of the topic `rules`: what a partition of a source topic is folded by from an offset on.

    Attributes:
        id: the same for each repetition of the record.
        time: when the rules were taken, RFC 3339.
        topic: source topic, catalogue name.
        partition: its partition.
        offset: first offset that is folded by them.
        settings: records of `settings` that are part of them: next offset by partition.
    """

    id: str
    time: str
    schema_version: str
    topic: str
    partition: int
    offset: int
    settings: dict[str, int] = {}


_decode_rules = msgspec.json.Decoder(RulesInForce).decode


class RuleSource:
    """Rules by scope.

    Attributes:
        base: of the rules file, or the shipped ones.
        environment: what the environment overrides; it wins over every scope.
        rules: what holds where no scope overrides anything.
        scoped: whether any user or workspace overrides something.
        changes: counts the changes.
    """

    __slots__ = ("_resolved", "_scopes", "base", "changes", "environment", "rules", "scoped")

    def __init__(self, base: Rules | None = None, environment: SettingsOverrides | None = None) -> None:
        """Start with scopes that override nothing."""
        self.base = base or Rules()
        self.environment = environment
        self._scopes: dict[str, SettingsOverrides] = {}
        self.changes = 0
        self._swap()

    def rebase(self, base: Rules) -> None:
        """Take other rules as those that scopes override; effective from the next batch on."""
        self.base = base
        self._swap()

    def copy(self) -> RuleSource:
        """Another source that says the same, and goes on to when this one changes."""
        made = RuleSource(self.base, self.environment)
        made.replace(self._scopes)
        return made

    def says_the_same(self, other: RuleSource) -> bool:
        """Whether another source has the same rules, environment and overrides."""
        return (
            self.base == other.base
            and (self.environment or SettingsOverrides()) == (other.environment or SettingsOverrides())
            and self._scopes == other._scopes
        )

    def in_force(self) -> bytes:
        """The rules, and what the environment overrides, as a log keeps them."""
        kept: bytes = _encode(RulesInForce(base=self.base, environment=self.environment or SettingsOverrides()))
        return kept

    def replace(self, scopes: Mapping[str, SettingsOverrides]) -> None:
        """Take the overrides of all scopes at once, as stored."""
        self._scopes = {scope: overrides for scope, overrides in scopes.items() if set_by(overrides)}
        self._forget()

    def set(self, scope: str, overrides: SettingsOverrides | None) -> None:
        """Take the overrides of one scope, `user:ID` or `workspace:ID`; None or nothing set clears it.

        Raises:
            Misfit: they make no rules; what the scope had before stays.
        """
        if overrides is None or not set_by(overrides):
            self._scopes.pop(scope, None)
        else:
            check(Level(scope.partition(":")[0]), overrides, self.rules)
            self._scopes[scope] = overrides
        self._forget()

    def fold(self, record: SourceRecord, partition: int) -> Output | None:
        """Take one record of the `settings` topic; returns its dead letter if it cannot be used."""
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
        except Misfit as misfit:
            return dead_letter(record, TOPIC, partition, rejected_overrides(misfit, "$.overrides"))
        return None

    def of(self, workspace: str, user: str, session: str = "") -> Rules:
        """Rules for a workspace, a user and what a session overrides (as `session_overrides` gives it)."""
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
        """What each level overrides for a workspace, a user and a session."""
        return self._levels(f"workspace:{workspace}", f"user:{user}", session)

    def scopes(self) -> dict[str, SettingsOverrides]:
        """What each scope overrides; scopes that override nothing are left out."""
        return dict(self._scopes)

    def _levels(self, workspace: str, user: str, session: str) -> Levels:
        return {
            Level.ENVIRONMENT: self.environment,
            Level.SESSION: _decode(session) if session else None,
            Level.WORKSPACE: self._scopes.get(workspace),
            Level.USER: self._scopes.get(user),
        }

    def _swap(self) -> None:
        self.rules = layered(self.base, {Level.ENVIRONMENT: self.environment})
        self._forget()

    def _forget(self) -> None:
        self._resolved: dict[tuple[str, str, str], Rules] = {}
        self.scoped = bool(self._scopes)
        self.changes += 1


def fingerprint(rules: RulesInForce) -> str:
    """Short name of rules and what the environment overrides; equal ones have the same in every process."""
    kept = msgspec.json.encode(RulesInForce(base=rules.base, environment=rules.environment), order="deterministic")
    return blake2b(kept, digest_size=6).hexdigest()


def source_of(rules: Rules | RuleSource) -> RuleSource:
    """A source; plain rules become one in which no scope overrides anything."""
    return rules if isinstance(rules, RuleSource) else RuleSource(rules)


def session_overrides(overrides: SettingsOverrides, rules: Rules) -> str:
    """What a session overrides, as its state keeps it: JSON of what is set; empty when nothing is.

    Raises:
        EventRejected: they make no rules, reach for what a session may not set, or are too long.
    """
    if not set_by(overrides):
        return ""
    try:
        check(Level.SESSION, overrides, rules)
    except Misfit as misfit:
        raise rejected_overrides(misfit, "$.settings") from misfit
    kept: bytes = _encode(overrides)
    if len(kept) > MAX_SESSION_BYTES:
        raise EventRejected(
            RejectReason.BAD_LENGTH,
            "$.settings",
            f"{len(kept)} bytes of overrides, at most {MAX_SESSION_BYTES}; save them for the workspace",
        )
    return kept.decode()


def rules_in_force(kept: bytes) -> RulesInForce:
    """What a log says of the rules (`RuleSource.in_force`).

    Raises:
        msgspec.ValidationError: another version wrote it, which knew rules that this one does not.
    """
    return _decode_rules(kept)


def rejected_overrides(misfit: Misfit, above: str) -> EventRejected:
    """The rejection of a record whose overrides do not fit."""
    where = shown(misfit.path)
    return EventRejected(RejectReason.BAD_VALUE, f"{above}.{where}" if where else above, misfit.what)
