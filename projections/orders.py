"""Selects the states and keys that an operator's command affects; shared by command line and dashboard."""

from __future__ import annotations

from collections.abc import Iterable

from ..schemas.public_state import BreakerUpdated, PublicState, TrustUpdated
from .calls.keys import has_scope, scope_of_key, tool_key, tool_of_key, unescape

EVERYTHING = "all"  # Key that selects all keys


def held(states: Iterable[PublicState], workspace: str | None) -> list[TrustUpdated | BreakerUpdated]:
    """Return trust and circuits that commands can affect: of one workspace, or of all.

    A user's state over all workspaces follows from the workspaces; a command there ends it.
    """
    return [
        one
        for one in states
        if isinstance(one, TrustUpdated | BreakerUpdated)
        and one.scope != "user"
        and workspace in {None, one.workspace_id}
    ]


def is_affected(known: str, key: str) -> bool:
    """Whether a command for a key, for a tool by its name, or for a service with all its keys affects a known key."""
    whole = key.startswith("service:") and scope_of_key(known) == key
    return whole or known in {key, f"tool:{key}", f"tool:{unescape(key)}"} or tool_of_key(known) == key


def trust_subjects(states: Iterable[PublicState], key: str) -> list[tuple[str | None, str]]:
    """Return workspace and key of each trust command for these states: one for a whole tool or service.

    Such a command affects the fine keys and the record of the whole, which may be unpublished (docs/trust.md, Scopes).
    """
    subjects: dict[tuple[str | None, str], None] = {}
    for state in states:
        if not isinstance(state, TrustUpdated):
            continue
        name = state.key
        if not has_scope(name) and key in {EVERYTHING, tool_of_key(name)}:
            name = tool_key(tool_of_key(name))
        elif key.startswith("service:") and scope_of_key(name) == key:
            name = key
        subjects[state.workspace_id, name] = None
    return list(subjects)
