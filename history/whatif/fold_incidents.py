"""Streaks of behaviour and incidents of keys in a fold, and their matching between two folds.

A streak is one pattern in one session, from its first report until the model breaks out of it; an incident is one key,
or one circuit, from the loss of trust or the opening until it is trusted or closed again. Decisions alone say too
little about rules: where a threshold is lower, each severity of a streak comes one call earlier, and is still the same
streak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, NamedTuple

import orjson

from ...projections.emitter import StageOutput
from ...schemas.outcomes import DEFAULT_WORKSPACE
from .decision_filters import DecisionFilter
from .guard_replay import StoppedCall

Kind = Literal["streak", "trust", "circuit"]
How = Literal["caught", "lost", "earlier", "later", "otherwise"]

OPEN_ENDED = 1 << 62  # End position of an open incident

_SEVERITIES = ("", "minor", "moderate", "severe")
_TRUST = ("", "escalated", "blocked", "removed")
_CIRCUITS = ("", "open", "forced_open")
# All steps of streaks and incidents, from mild to severe within a kind
STEPS = tuple(dict.fromkeys((*_SEVERITIES, *_TRUST, *_CIRCUITS)))

_TRUST_ENDS, _CIRCUIT_ENDS = frozenset({"trusted"}), frozenset({"closed", "disabled"})
_TYPES = frozenset({"pattern.detected", "pattern.cleared", "nudge.issued", "trust.changed", "breaker.changed"})

_USER = "user:"  # Prefix of the place of a loss of trust for a user in all workspaces
Place = tuple[str, ...]  # Identity of the subject of a streak or an incident, independent of the rules


@dataclass(slots=True)
class FoldIncident:
    """Streak, or incident of a key or a circuit, in one fold."""

    kind: Kind  # streak, trust or circuit
    place: Place  # identity of its subject
    subject: str  # pattern, key or circuit
    scope: str  # what the key or circuit stands for: `key`, `tool`, `service`, `tier` or `user`; of a streak `session`
    workspace: str  # where; `user:NAME` where a user has lost trust everywhere
    session: str  # the session that is stuck, or whose event began it
    began: int  # number of the input at which it began
    time_ms: int
    cause: str  # id of the event that completed it; of a key the newest failure
    ended: int = OPEN_ENDED  # number of the input at which it ended; `OPEN_ENDED` while it lasts
    worst: str = ""  # worst step that was reached, in words
    nudges: list[str] = field(default_factory=list)  # kinds of the nudges issued, in their order
    held: list[StoppedCall] = field(default_factory=list)  # calls that a guard would have held up for its sake
    passes: bool = False  # whether one of its decisions passes the filters

    @property
    def said(self) -> tuple[object, ...]:
        """Its effects, for comparison; without its start."""
        return self.worst, tuple(self.nudges), tuple(held[:-1] for held in self.held)


class _IncidentStep(NamedTuple):
    """Step of a streak or an incident."""

    place: Place
    subject: str  # pattern, key or circuit
    name: str
    order: tuple[str, ...]  # all steps that make it worse, mildest first
    ends: bool  # True if this step ends it


class IncidentCollector:
    """Collector of the streaks and incidents of one fold."""

    def __init__(self, passing: DecisionFilter | None = None) -> None:
        """Collect with the filters of a history."""
        self.all: list[FoldIncident] = []  # all streaks and incidents, in the order of their start
        self._passing = passing or DecisionFilter()
        self._open: dict[Place, FoldIncident] = {}
        self._latest: dict[Place, FoldIncident] = {}
        self._of_pattern: dict[str, FoldIncident] = {}
        self._seen: set[str] = set()

    def hold(self, calls: Iterable[StoppedCall]) -> None:
        """Add calls stopped by the guard at this position of the inputs; each counts once."""
        for held in calls:
            if held.event_id in self._seen or not self._passing.has_held(held):
                continue
            self._seen.add(held.event_id)
            kind, known = "circuit" if held.circuit else "trust", self._latest
            found = known.get((kind, held.workspace, held.key)) or known.get((kind, _USER + held.user, held.key))
            if found is not None:
                found.held.append(held)
                found.passes = True

    def take(self, position: int, outputs: Iterable[StageOutput]) -> None:
        """Add the outputs of one input, by its number."""
        for output in outputs:
            if output.type in _TYPES and output.value is not None:
                self._take(position, output, orjson.loads(output.value))

    def _take(self, position: int, output: StageOutput, body: dict[str, Any]) -> None:
        match output.type:
            case "pattern.detected" | "pattern.cleared":
                place = (
                    "streak",
                    *(str(body.get(name) or "") for name in ("session_id", "agent_id", "pattern", "fingerprint")),
                )
                ends = output.type == "pattern.cleared"
                found = self._move(
                    position, output, body, _IncidentStep(place, body["pattern"], body["severity"], _SEVERITIES, ends)
                )
                if found is not None and not ends:
                    self._of_pattern[body["id"]] = found
            case "nudge.issued":
                found = self._of_pattern.get(body["pattern_id"])
                if found is not None:
                    found.nudges.append(body["nudge_type"])
                    found.passes = found.passes or self._passing.has(output)
            case "trust.changed":
                user = body["scope"] == "user"
                of_whom = _USER + body.get("user_id", "") if user else body.get("workspace_id", DEFAULT_WORKSPACE)
                to = body["to"]
                step = _IncidentStep(("trust", of_whom, body["key"]), body["key"], to, _TRUST, to in _TRUST_ENDS)
                self._move(position, output, body, step)
            case "breaker.changed":
                workspace, key = body.get("workspace_id", DEFAULT_WORKSPACE), body["breaker_key"]
                to = body["to"]
                step = _IncidentStep(("circuit", workspace, key), key, to, _CIRCUITS, to in _CIRCUIT_ENDS)
                self._move(position, output, body, step)

    def _move(
        self, position: int, output: StageOutput, body: dict[str, Any], step: _IncidentStep
    ) -> FoldIncident | None:
        """Start, continue or end the streak or incident of a place."""
        place = step.place
        if step.ends:
            ended = self._open.pop(place, None)
            if ended is not None:
                ended.ended = position
            return ended
        found = self._open.get(place)
        if found is None:
            if step.name not in step.order:  # recovering or half open: it began before the first input
                return None
            found = self._open[place] = self._latest[place] = FoldIncident(
                kind=place[0],  # type: ignore[arg-type]
                place=place,
                subject=step.subject,
                scope=_scope(body),
                workspace=place[1] if place[0] != "streak" else body.get("workspace_id", DEFAULT_WORKSPACE),
                session=str(body.get("session_id") or ""),
                began=position,
                time_ms=output.time_ms,
                cause=str((body.get("caused_by") or [""])[-1]),
            )
            self.all.append(found)
        if step.name in step.order and step.order.index(step.name) > step.order.index(found.worst):
            found.worst = step.name
        found.passes = found.passes or self._passing.has(output)
        return found


def _scope(body: dict[str, Any]) -> str:
    if "breaker_key" in body:
        return str(body["breaker_key"]).partition(":")[0]
    return str(body.get("scope", "session"))


class IncidentShift(NamedTuple):
    """Difference of one streak or incident between two folds."""

    # `caught`: only they see it; `lost`: only the first ones do; `earlier` and `later`: both do, from another input on;
    # `otherwise`: from the same on, but it goes further or less far, or other calls are held up
    how: How
    before: tuple[FoldIncident, ...]  # under the first rules; several where the other ones see them as one
    after: tuple[FoldIncident, ...]  # under the other rules

    @property
    def one(self) -> FoldIncident:
        """First incident of the difference."""
        return (self.after or self.before)[0]


def shifts(before: Iterable[FoldIncident], after: Iterable[FoldIncident]) -> tuple[list[IncidentShift], int]:
    """Differences between the streaks and incidents of two folds, by time, and the number of equal ones.

    Those about one place belong together while they overlap: what one side sees as one, the other may see as two. Each
    incident of either side is part of exactly one shift, or of one of those that do not differ.
    """
    found: list[IncidentShift] = []
    alike = 0
    for first, second in _together(before, after):
        if not any(one.passes for one in (*first, *second)):
            continue
        how = _how(first, second)
        if how is None:
            alike += 1
        else:
            found.append(IncidentShift(how, first, second))
    return sorted(found, key=lambda shift: (shift.one.began, shift.one.place)), alike


def _together(
    before: Iterable[FoldIncident], after: Iterable[FoldIncident]
) -> Iterator[tuple[tuple[FoldIncident, ...], tuple[FoldIncident, ...]]]:
    """Groups of incidents of both sides with the same place that overlap."""
    sided = [(one, side) for side, every in enumerate((before, after)) for one in every]
    sided.sort(key=lambda pair: (pair[0].place, pair[0].began, pair[1]))
    for _, of_place in groupby(sided, key=lambda pair: pair[0].place):
        group: tuple[list[FoldIncident], list[FoldIncident]] = ([], [])
        reach = -1
        for one, side in of_place:
            if one.began >= reach and (group[0] or group[1]):
                yield tuple(group[0]), tuple(group[1])
                group = ([], [])
            group[side].append(one)
            reach = max(reach, one.ended, one.began + 1)
        yield tuple(group[0]), tuple(group[1])


def _how(before: tuple[FoldIncident, ...], after: tuple[FoldIncident, ...]) -> How | None:
    if not before:
        return "caught"
    if not after:
        return "lost"
    if before[0].began != after[0].began:
        return "earlier" if after[0].began < before[0].began else "later"
    return None if [one.said for one in before] == [one.said for one in after] else "otherwise"
