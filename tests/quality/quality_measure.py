"""Folds recorded sessions and counts what is said to the model and to people, and what a guard would have done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from quality_sessions import Source
from trustfold.cli.checks import CHECKS, CallCheck, CallChecker, GuardVerdict, check_of
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet
from trustfold.schemas.outcomes import DEFAULT_WORKSPACE
from trustfold.schemas.vocabulary import NudgeType

UNCOUNTED = frozenset({"call_budget", "stalled_call", "stalled_turn"})
"""Patterns that say nothing about whether a session is stuck: they do not make it an alarmed one."""


@dataclass(slots=True)
class Detection:
    """One streak that was reported.

    Attributes:
        call: number of finished calls of the session up to its first report, the last included.
        severity: the highest it was reported with.
        repetitions: at its latest report.
        request: the call that showed it first, in one line; empty for talk.
        paused: a nudge about it interrupted the run.
        line: number of the event that revealed it, in its source.
    """

    source: str
    session: str
    pattern: str
    severity: str
    repetitions: int
    request: str
    call: int
    line: int
    paused: bool = False


@dataclass(slots=True)
class Session:
    """What was seen of one session."""

    calls: int = 0
    detections: list[Detection] = field(default_factory=list)

    @property
    def alarms(self) -> list[Detection]:
        """Detections that say that the session is stuck."""
        return [one for one in self.detections if one.pattern not in UNCOUNTED]


class Interruption(NamedTuple):
    """A call that would not simply have been made.

    Attributes:
        line: number of its start in its source.
        causes: ids of the events behind the latest change of the key or circuit that decided.
    """

    source: str
    check: CallCheck
    line: int
    causes: tuple[str, ...] = ()


@dataclass(slots=True)
class Measured:
    """One source under one set of rules.

    Attributes:
        sessions: by session id.
        nudges: nudges by type.
        told: reports of patterns that a person is told.
        verdicts: what a guard would have done with each call.
        interruptions: calls that it would not simply have allowed.
        refused: events that became dead letters; there should be none.
    """

    source: str
    sessions: dict[str, Session] = field(default_factory=dict)
    nudges: Counter[str] = field(default_factory=Counter)
    told: int = 0
    verdicts: Counter[GuardVerdict] = field(default_factory=Counter)
    interruptions: list[Interruption] = field(default_factory=list)
    refused: int = 0

    @property
    def calls(self) -> int:
        """Calls that finished."""
        return sum(session.calls for session in self.sessions.values())

    @property
    def detections(self) -> list[Detection]:
        """All streaks that were reported."""
        return [one for session in self.sessions.values() for one in session.detections]

    @property
    def patterns(self) -> Counter[str]:
        """Detections by pattern."""
        return Counter(one.pattern for one in self.detections)

    @property
    def pauses(self) -> int:
        """Nudges that interrupt."""
        return self.nudges[NudgeType.INTERRUPT]

    @property
    def keys(self) -> Counter[str]:
        """Interruptions by the trust key or circuit that decided."""
        return Counter(one.check.key for one in self.interruptions)


def measure(source: Source, rules: RuleSet) -> Measured:
    """Fold a source as it was recorded, and check each of its calls."""
    fold = _Fold(Measured(source.name))
    checker = CallChecker(LocalTopology(rules))
    for number, line in enumerate(source.lines()):
        for output in checker.feed("events", (line,)):
            fold.note(output, number, line)
    return fold.measured


class _Fold:
    """What is remembered while a source is folded: open streaks, and the events behind held keys."""

    def __init__(self, measured: Measured) -> None:
        self.measured = measured
        self._streaks: dict[tuple[str, ...], Detection] = {}
        self._by_pattern_id: dict[str, Detection] = {}
        self._causes: dict[tuple[str, str], tuple[str, ...]] = {}

    def note(self, output: StageOutput, number: int, line: bytes) -> None:
        """Count one output of the event in a line."""
        measured = self.measured
        if output.topic == "outcomes":
            if output.id.endswith("/tool"):
                self._session(orjson.loads(output.value or b"{}")["session_id"]).calls += 1
        elif output.topic == "dead-letters":
            measured.refused += 1
        elif output.topic == CHECKS:
            self._check(check_of(output), number, line)
        elif output.type in {"trust.changed", "breaker.changed"}:
            told = orjson.loads(output.value or b"{}")
            if told.get("caused_by"):
                self._causes[told["workspace_id"], told.get("key") or told["breaker_key"]] = tuple(told["caused_by"])
        elif output.topic == "nudges":
            self._hear(orjson.loads(output.value or b"{}"), output.id, number)

    def _session(self, name: str) -> Session:
        return self.measured.sessions.setdefault(name, Session())

    def _check(self, check: CallCheck, number: int, line: bytes) -> None:
        self.measured.verdicts[check.decision] += 1
        if check.decision is not GuardVerdict.ALLOW:
            workspace = orjson.loads(line).get("workspace_id") or DEFAULT_WORKSPACE
            behind = self._causes.get((workspace, check.key), ())
            self.measured.interruptions.append(Interruption(self.measured.source, check, number, behind))

    def _hear(self, told: dict[str, Any], output_id: str, number: int) -> None:
        if told["type"] == "nudge.issued":
            self.measured.nudges[told["nudge_type"]] += 1
            if told["nudge_type"] == NudgeType.INTERRUPT:
                self._by_pattern_id[told["pattern_id"]].paused = True
            return
        if told["type"] not in {"pattern.detected", "pattern.cleared"}:
            return
        name = told["session_id"]
        key = name, told["pattern"], told["fingerprint"], told.get("agent_id") or ""
        if told["type"] == "pattern.cleared":
            self._streaks.pop(key, None)
            return
        self.measured.told += bool(told.get("notify_user"))
        known = self._streaks.get(key)
        if known is None:
            session = self._session(name)
            known = Detection(
                self.measured.source,
                name,
                told["pattern"],
                told["severity"],
                told["repetitions"],
                told.get("request") or "",
                session.calls,
                number,
            )
            self._streaks[key] = known
            session.detections.append(known)
        known.severity, known.repetitions = told["severity"], told["repetitions"]
        self._by_pattern_id[output_id] = known
