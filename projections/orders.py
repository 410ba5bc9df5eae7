"""Which states and keys an operator's order is about: the same for the command line and for the dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from .calls.keys import has_scope, tool_key, tool_of_key, unescape

State = Mapping[str, Any]
"""A public record (`StateUpdated`) as it stands on the wire."""

S = TypeVar("S", bound=State)

EVERYTHING = "all"
"""Stands for every key."""


def held(states: Iterable[S], workspace: str | None) -> list[S]:
    """Trust and circuits that orders can be about: of one workspace, or of all.

    What holds for a user everywhere follows from the workspaces; an order there ends it.
    """
    return [
        one
        for one in states
        if one["kind"] in {"trust", "breaker"}
        and one.get("scope") != "user"
        and workspace in {None, one.get("workspace_id")}
    ]


def is_meant(known: str, key: str) -> bool:
    """Whether an order for a key, or for a tool by its name, is about a known key."""
    return known in {key, f"tool:{key}", f"tool:{unescape(key)}"} or tool_of_key(known) == key


def trust_subjects(states: Iterable[State], key: str) -> list[tuple[str | None, str]]:
    """Workspace and key of each order about the trust of states: one for the tool where all of its keys are meant.

    An order for the tool reaches its fine keys and its own record, which may be unpublished (docs/trust.md, Scopes).
    """
    subjects: dict[tuple[str | None, str], None] = {}
    for state in states:
        name = str(state["key"])
        if state["kind"] != "trust":
            continue
        if not has_scope(name) and key in {EVERYTHING, tool_of_key(name)}:
            name = tool_key(tool_of_key(name))
        subjects[state.get("workspace_id"), name] = None
    return list(subjects)
