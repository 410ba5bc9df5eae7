"""Runs the detectors over recorded sessions and counts what they say, by source and by how sessions ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import orjson
from quality_sessions import Ending, Source
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import Rules


@dataclass(slots=True)
class Alarm:
    """One streak that was reported.

    Attributes:
        call: number of finished calls of the session up to it, the last included.
        severity: the highest it was reported with.
        repetitions: at its latest report.
        events: ids of the events behind its first report.
        line: number of the event that revealed it, in its source.
    """

    source: str
    session: str
    pattern: str
    severity: str
    repetitions: int
    call: int
    events: tuple[str, ...]
    line: int


@dataclass(slots=True)
class Session:
    """What was seen of one session."""

    calls: int = 0
    alarms: list[Alarm] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """Sessions of one source that ended alike.

    Attributes:
        caught: sessions with at least one alarm.
        first_calls: call at which each of them was caught.
    """

    sessions: int = 0
    calls: int = 0
    alarms: int = 0
    severe: int = 0
    caught: int = 0
    patterns: Counter[str] = field(default_factory=Counter)
    first_calls: list[int] = field(default_factory=list)

    @property
    def per_thousand(self) -> float | None:
        """Alarms per 1,000 calls; None without calls."""
        return 1000 * self.alarms / self.calls if self.calls else None

    @property
    def caught_share(self) -> float | None:
        """Share of the sessions that were caught; None without sessions."""
        return self.caught / self.sessions if self.sessions else None

    def as_json(self) -> dict[str, Any]:
        """The figures, for programs."""
        return {
            "sessions": self.sessions,
            "calls": self.calls,
            "alarms": self.alarms,
            "severe": self.severe,
            "alarms_per_1000_calls": self.per_thousand,
            "sessions_caught": self.caught,
            "share_caught": self.caught_share,
            "median_call_caught": median(self.first_calls) if self.first_calls else None,
            "patterns": dict(self.patterns.most_common()),
        }


class Measure:
    """One set of rules over any number of sources.

    Attributes:
        sessions: by source and session id.
        refused: events that became dead letters; there should be none.
    """

    def __init__(self, rules: Rules) -> None:
        """Start with nothing seen."""
        self.rules = rules
        self.sessions: dict[tuple[str, str], Session] = {}
        self.refused = 0

    def run(self, source: Source, progress: Callable[[int], None] = lambda _lines: None) -> None:
        """Fold a source; `progress` is told the lines folded."""
        topology = LocalTopology(self.rules)
        open_streaks: dict[tuple[str, str, str], Alarm] = {}
        for number, line in enumerate(source.lines()):
            for output in topology.feed("events", (line,)):
                if output.topic == "outcomes":
                    self._count_call(source.name, output.id, output.value or b"")
                elif output.type in {"pattern.detected", "pattern.cleared"}:
                    self._hear(source.name, orjson.loads(output.value or b"{}"), number, open_streaks)
                elif output.topic == "dead-letters":
                    self.refused += 1
            if number % 500 == 0:
                progress(500)

    def _count_call(self, source: str, outcome_id: str, value: bytes) -> None:
        if not outcome_id.endswith("/tool"):
            return
        outcome = orjson.loads(value)
        self.sessions.setdefault((source, outcome["session_id"]), Session()).calls += 1

    def _hear(self, source: str, told: dict[str, Any], line: int, streaks: dict[tuple[str, str, str], Alarm]) -> None:
        name = told["session_id"]
        key = name, told["pattern"], told["fingerprint"]
        if told["type"] == "pattern.cleared":
            streaks.pop(key, None)
            return
        known = streaks.get(key)
        if known is not None:
            known.severity, known.repetitions = told["severity"], told["repetitions"]
            return
        session = self.sessions.setdefault((source, name), Session())
        alarm = streaks[key] = Alarm(
            source,
            name,
            told["pattern"],
            told["severity"],
            told["repetitions"],
            session.calls,
            tuple(told.get("caused_by", ())),
            line,
        )
        session.alarms.append(alarm)

    def groups(self, endings: dict[tuple[str, str], Ending]) -> dict[tuple[str, Ending], Group]:
        """Figures by source and ending."""
        found: dict[tuple[str, Ending], Group] = {}
        for (source, name), session in self.sessions.items():
            group = found.setdefault((source, endings.get((source, name), Ending.UNKNOWN)), Group())
            group.sessions += 1
            group.calls += session.calls
            group.alarms += len(session.alarms)
            group.severe += sum(alarm.severity == "severe" for alarm in session.alarms)
            group.patterns.update(alarm.pattern for alarm in session.alarms)
            if session.alarms:
                group.caught += 1
                group.first_calls.append(session.alarms[0].call)
        return found
