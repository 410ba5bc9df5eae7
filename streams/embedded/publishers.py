"""Ownership of sessions and workspaces over HTTP: publishers write to their own alone (docs/operating.md, Publishers).

A session belongs to the publisher that wrote its first event, or to the hooks of a connected agent. Events of anybody
else become dead letters (`not_yours`). A publisher with a token of its own writes to its own workspaces alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson

from ...errors import ConfigError, EventRejected, RejectReason
from ...schemas.codec import UNREADABLE
from ...schemas.outcomes import DEFAULT_WORKSPACE

MAX_CACHED = 20_000  # Number of owners kept in memory; the store has all of them
SESSION, WORKSPACE = "session", "workspace"  # Kinds of what a publisher can own
BLOCKING = frozenset({"security", "repeated_auth"})  # Severities that block or escalate a key at the first failure


class SenderIdentity(NamedTuple):
    """Sender of events."""

    name: str = ""  # empty for those that share TRUSTFOLD_TOKEN, or need none
    workspaces: frozenset[str] | None = None  # the only ones it may name; None: all but those `barred`
    barred: frozenset[str] = frozenset()  # workspaces of publishers that have a token of their own


# Hooks of agents that this user has connected; they come by the server's private socket
HOOKS = SenderIdentity("hooks")


class _OwnerEntry(msgspec.Struct, forbid_unknown_fields=True):
    token: str
    workspaces: list[str]


_entries = msgspec.json.Decoder(dict[str, _OwnerEntry])


def read_publishers(path: Path | None) -> dict[str, SenderIdentity]:
    """Return the publishers that have a token of their own, by token.

    Args:
        path: JSON file `{"NAME": {"token": "…", "workspaces": ["…"]}}`; None for none.
    """
    if path is None:
        return {}
    try:
        entries = _entries.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: no file of publishers: {error}") from error
    found: dict[str, SenderIdentity] = {}
    for name, entry in entries.items():
        token, workspaces = entry.token.strip(), entry.workspaces
        if not name or name == HOOKS.name:
            raise ConfigError(f"{path}: {name!r} is no publisher's name; give it another")
        if not token or token in found:
            raise ConfigError(f"{path}: {name!r} needs a token that no other publisher has")
        if not workspaces or DEFAULT_WORKSPACE in workspaces or not all(workspaces):
            raise ConfigError(
                f"{path}: name the workspaces of {name!r}; {DEFAULT_WORKSPACE!r}, that of events that name none, is "
                "everybody's"
            )
        found[token] = SenderIdentity(name, frozenset(workspaces))
    return found


class _OuterEnvelope(msgspec.Struct):
    """CloudEvent around an event; all other fields are read by nobody, and may hold anything."""

    schema_version: Any = msgspec.UNSET
    specversion: Any = msgspec.UNSET
    data: msgspec.Raw = msgspec.Raw(b"")


class _EventOwner(msgspec.Struct):
    """Part of an event that says whose it is."""

    session_id: str | None = None
    workspace_id: str | None = None
    severity: Any = None
    error: Any = None

    @property
    def blocks(self) -> bool:
        """Whether it states a severity that blocks a key at once."""
        error = self.error if isinstance(self.error, dict) else {}
        return any(isinstance(one, str) and one in BLOCKING for one in (self.severity, error.get("severity")))


_around = msgspec.json.Decoder(_OuterEnvelope).decode
_about = msgspec.json.Decoder(_EventOwner).decode


def _about_of(value: bytes) -> _EventOwner | None:
    """Return what an event says; None if no fold can read it either."""
    try:
        around = _around(value)
        while around.schema_version is msgspec.UNSET and around.specversion is not msgspec.UNSET and around.data:
            value = bytes(around.data)
            around = _around(value)
        return _about(value)
    except UNREADABLE:
        return None


class SessionOwners:
    """Owners of the sessions and workspaces of one store; not thread-safe."""

    def __init__(
        self,
        known: Callable[[str, str], str | None],
        exists: Callable[[str], bool],
        workspace_of: Callable[[str], str],
    ) -> None:
        """Start with what is stored.

        Args:
            known: returns the stored owner by kind and name; None without one.
            exists: whether a session has events.
            workspace_of: returns the workspace of a session; empty if unknown.
        """
        self._known, self._exists, self._workspace_of = known, exists, workspace_of
        self._cached: dict[tuple[str, str], str | None] = {}
        self._claimed: dict[tuple[str, str], str] = {}
        self._named: dict[str, str] = {}

    def admit(self, value: bytes, publisher: SenderIdentity) -> bytes:
        """Return the event as it may be folded; what nobody can decode is left to the fold.

        A severity that would block a tool at once is removed where the workspace is that of connected agents and the
        publisher has none of its own.

        Raises:
            EventRejected: the publisher may not say it (`not_yours`).
        """
        about = _about_of(value)
        if about is None or not about.session_id:
            return value
        session = about.session_id
        owner = self._owner(SESSION, session)
        if publisher == HOOKS:
            self._claim(SESSION, session, publisher)
            if about.workspace_id:
                self._claim(WORKSPACE, about.workspace_id, publisher)
            return value
        if owner is None and publisher.name and self._exists(session):
            owner = ""
        if owner is not None and owner != publisher.name:
            whose = "a connected agent" if owner == HOOKS.name else "another publisher"
            raise _refusal("session_id", f"this session is that of {whose}; use an id of your own")
        if publisher.workspaces is not None:
            value = _in_own_workspace(value, about.workspace_id, publisher.workspaces)
            self._claim(SESSION, session, publisher)
            return value
        if about.workspace_id in publisher.barred:
            raise _refusal("workspace_id", f"{about.workspace_id!r} is that of a publisher with a token of its own")
        if about.workspace_id:
            self._named[session] = about.workspace_id
        if about.blocks:
            workspace = about.workspace_id or self._named.get(session) or self._workspace_of(session)
            if self._owner(WORKSPACE, workspace or DEFAULT_WORKSPACE) == HOOKS.name:
                return _without_severity(value)
        return value

    def claimed(self) -> list[tuple[str, str, str]]:
        """Return kind, name and owner of what has been claimed since the last time, to be stored."""
        rows = [(*subject, owner) for subject, owner in self._claimed.items()]
        self._claimed.clear()
        self._named.clear()
        return rows

    def forget(self) -> None:
        """Forget what was not stored."""
        for part in (self._cached, self._claimed, self._named):
            part.clear()

    def _owner(self, kind: str, name: str) -> str | None:
        subject = (kind, name)
        if subject not in self._cached:
            if len(self._cached) >= MAX_CACHED:
                self._cached = dict(self._claimed)
            self._cached[subject] = self._known(kind, name)
        return self._cached[subject]

    def _claim(self, kind: str, name: str, publisher: SenderIdentity) -> None:
        if self._owner(kind, name) != publisher.name:
            self._cached[kind, name] = self._claimed[kind, name] = publisher.name


def _in_own_workspace(value: bytes, named: str | None, own: frozenset[str]) -> bytes:
    """Return an event with its workspace: the publisher's only one where it names none."""
    if named in own:
        return value
    if named is None and len(own) == 1:
        record = orjson.loads(value)
        _event_in(record)["workspace_id"] = next(iter(own))
        return orjson.dumps(record)
    if named is None:
        raise _refusal("workspace_id", "name the workspace: this token has several")
    raise _refusal("workspace_id", f"this token is not for the workspace {named[:100]!r}")


def _without_severity(value: bytes) -> bytes:
    record = orjson.loads(value)
    event = _event_in(record)
    for part in (event, event.get("error")):
        if isinstance(part, dict):
            part.pop("severity", None)
    return orjson.dumps(record)


def _event_in(record: dict[str, Any]) -> dict[str, Any]:
    """Return the event in a CloudEvent, or the record itself."""
    while "schema_version" not in record and "specversion" in record:
        record = record["data"]
    return record


def _refusal(field: str, message: str) -> EventRejected:
    return EventRejected(RejectReason.NOT_YOURS, f"$.{field}", message)
