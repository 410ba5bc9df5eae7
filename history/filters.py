"""Filters of a history: a span of time, workspaces, tools, models, sessions.

Filters apply in the views of recorded topics, which all other views, macros and questions are built on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ..errors import ConfigError

# Topics with state transitions of keys, and the column of the key
KEYED = {"escalations": "trust_key", "breakers": "breaker_key"}

_CHANGES = {"escalations": "trust.changed", "breakers": "breaker.changed"}
_OF_SESSIONS = frozenset({"events", "outcomes", "nudges", "suggestions"})
_WITHOUT_WORKSPACE = frozenset({"settings", "rules", "dead-letters"})

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(min|h|d|w)")
_UNITS = {"min": 60, "h": 3600, "d": 86_400, "w": 604_800}

# Event types that only complete another row: end of a pattern, effect of a nudge or that it had none
_ENDS = "('pattern.cleared', 'nudge.judged', 'nudge.withdrawn')"


class HistoryFilters(NamedTuple):
    """Filters of a history; an empty field filters nothing."""

    since: datetime | None = None  # start time, inclusive
    until: datetime | None = None  # end time, exclusive
    workspaces: tuple[str, ...] = ()  # names of workspaces; records without one belong to `default`
    # names of tools. Decisions pass if one of their causes passes, or if the key belongs to the tool.
    tools: tuple[str, ...] = ()
    # names of models; `unknown` for records without one. Decisions pass if one of their causes passes.
    models: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()  # ids of sessions

    def conditions(self, topic: str, rows: str, events: str) -> list[str]:
        """SQL conditions for the rows of a topic, by its catalogue name.

        All transitions of a key pass if a cause of one of them passes, so that no outage loses its end. `rows`: query
        of all rows of the topic; `events`: query of all events that decisions may name as causes.
        """
        found = [f"time >= {timestamp(self.since)}"] if self.since else []
        found += [f"time < {timestamp(self.until)}"] if self.until else []
        if self.workspaces and topic not in _WITHOUT_WORKSPACE:
            found.append(f"coalesce(workspace_id, 'default') IN {_listed(self.workspaces)}")
        if self.sessions and topic in _OF_SESSIONS:
            found.append(f"session_id IN {_listed(self.sessions)}")
        if topic == "outcomes":
            found += self._of_calls()
        elif topic == "events":
            found += [f"({one} OR type = 'feedback.false_alarm')" for one in self._of_calls()]
        elif topic in KEYED and (self._of_calls() or self.sessions):
            found.append(self._of_key(KEYED[topic], rows, events))
        elif topic in _OF_SESSIONS and self._of_calls():
            causes = f"SELECT id, unnest(caused_by) AS cause FROM ({rows})"  # noqa: S608 - names are quoted
            caused = f"SELECT id FROM ({causes}) WHERE cause IN ({self._causes(events)})"  # noqa: S608
            found.append(f"(type IN {_ENDS} OR id IN ({caused}))")
        return found

    def carried(self, topic: str, rows: str, events: str) -> str:
        """Query of the transitions before `since` of the keys that the other filters let pass.

        `topic` is one of `KEYED`; `rows` and `events` as in `conditions`.
        """
        if not self.since:
            return f"FROM ({rows}) WHERE false"
        earlier = self._replace(since=None, until=self.since).conditions(topic, rows, events)
        return f"FROM ({rows}) WHERE type = '{_CHANGES[topic]}' AND {' AND '.join(earlier)}"

    def description(self) -> str:
        """Description of the filters; empty if there are none."""
        times = [
            f"{word} {time:%Y-%m-%d %H:%M:%S}" for word, time in (("since", self.since), ("until", self.until)) if time
        ]
        named = {"workspace": self.workspaces, "tool": self.tools, "model": self.models, "session": self.sessions}
        return ", ".join(times + [f"{word} {' or '.join(names)}" for word, names in named.items() if names])

    def _of_calls(self) -> list[str]:
        named = {"tool_name": self.tools, "coalesce(model, 'unknown')": self.models}
        return [f"{column} IN {_listed(names)}" for column, names in named.items() if names]

    def _causes(self, events: str) -> str:
        own = self._of_calls() + ([f"session_id IN {_listed(self.sessions)}"] if self.sessions else [])
        return f"SELECT id FROM ({events}) WHERE id IS NOT NULL AND {' AND '.join(own)}"  # noqa: S608

    def _of_key(self, key: str, rows: str, events: str) -> str:
        place = f"coalesce(workspace_id, ''), {key}"
        caused = (
            f"SELECT place FROM (SELECT ({place}) AS place, unnest(caused_by) AS cause FROM ({rows})) "  # noqa: S608
            f"WHERE cause IN ({self._causes(events)})"
        )
        condition = f"({place}) IN ({caused})"
        if self.tools and not self.models and not self.sessions:
            return f"({condition} OR tool_of({key}) IN {_listed(self.tools)})"
        return condition


EVERYTHING = HistoryFilters()


def timestamp(time: datetime) -> str:
    """A time as an SQL literal, in UTC."""
    return f"TIMESTAMP '{time.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"


def _listed(names: Iterable[str]) -> str:
    quoted = (name.replace("'", "''") for name in names)
    return "(" + ", ".join(f"'{name}'" for name in quoted) + ")"


def span_of(text: str) -> timedelta | None:
    """Parse a duration such as 30d or 90min; None if the text is not one."""
    span = _SPAN.fullmatch(text.strip())
    return timedelta(seconds=float(span[1]) * _UNITS[span[2]]) if span else None


def moment_of(since: str | None, now: datetime | None = None, *, option: str = "--since") -> datetime | None:
    """Parse the value of `--since` or another time option into a time in UTC."""
    if not since:
        return None
    try:
        if (span := span_of(since)) is not None:
            return (now or datetime.now(UTC)) - span
        time = datetime.fromisoformat(since.strip())
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except ValueError:
        raise ConfigError(f"{option} {since}: give a span (30d, 12h, 90min, 2w) or a time (2026-01-31T12:00)") from None
    except OverflowError:
        raise ConfigError(f"{option} {since}: that is before all time; leave it out for everything") from None
