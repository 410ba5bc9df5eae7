"""Filters for decisions in memory, equivalent to the SQL filters of the questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ...projections.calls.keys import has_scope, tool_of_key
from ...projections.emitter import StageOutput
from ...schemas.outcomes import DEFAULT_WORKSPACE
from ..filters import EVERYTHING, HistoryFilters
from .guard_replay import StoppedCall

if TYPE_CHECKING:
    import duckdb

_KEYS = ("key", "breaker_key", "failure_key")


class DecisionFilter:
    """Filter for decisions and stopped calls, by the filters of a history.

    A decision passes by its time, its workspace, its session, and, where tools, models or sessions are named, by the
    events behind it; that of a key also when the key is the tool's.
    """

    def __init__(self, filters: HistoryFilters = EVERYTHING, events: frozenset[str] | None = None) -> None:
        """Create a filter; `events`, ids of those that pass, are required if tools, models or sessions are given."""
        self._from = int(filters.since.timestamp() * 1000) if filters.since else None
        self._until = int(filters.until.timestamp() * 1000) if filters.until else None
        self._workspaces, self._tools = frozenset(filters.workspaces), frozenset(filters.tools)
        self._by_tool_alone = bool(filters.tools) and not filters.models and not filters.sessions
        self._events = events

    def has_time(self, time_ms: int) -> bool:
        """True if a time is in the range."""
        return (self._from is None or time_ms >= self._from) and (self._until is None or time_ms < self._until)

    def has(self, output: StageOutput) -> bool:
        """True if a decision passes."""
        if not self.has_time(output.time_ms):
            return False
        looks_inside = bool(self._workspaces) or self._events is not None
        return not looks_inside or self.has_body(orjson.loads(output.value or b"{}"))

    def has_held(self, held: StoppedCall) -> bool:
        """True if a stopped call passes."""
        if not self.has_time(held.time_ms) or (self._workspaces and held.workspace not in self._workspaces):
            return False
        return self._events is None or held.event_id in self._events

    def has_body(self, body: dict[str, Any]) -> bool:
        """True if a decision passes all filters except time."""
        if self._workspaces and body.get("workspace_id", DEFAULT_WORKSPACE) not in self._workspaces:
            return False
        if self._events is None or not self._events.isdisjoint(body.get("caused_by", ())):
            return True
        return self._by_tool_alone and self._is_of_a_tool(body)

    def _is_of_a_tool(self, body: dict[str, Any]) -> bool:
        key = str(next((body[name] for name in _KEYS if name in body), ""))
        if key.startswith("tool:"):
            return key.removeprefix("tool:") in self._tools
        return bool(key) and not has_scope(key) and tool_of_key(key) in self._tools


def passing(connection: duckdb.DuckDBPyConnection, filters: HistoryFilters) -> DecisionFilter:
    """Create the filter for decisions about a history, from an unfiltered connection to it."""
    own = filters._replace(since=None, until=None, workspaces=())
    if own == EVERYTHING:
        return DecisionFilter(filters)
    told = " AND ".join(own.conditions("events", "", ""))
    rows = connection.execute(f"SELECT id FROM recorded_events WHERE id IS NOT NULL AND {told}").fetchall()  # noqa: S608
    return DecisionFilter(filters, frozenset(row[0] for row in rows))
