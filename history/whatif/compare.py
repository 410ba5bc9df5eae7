"""Comparison of two sets of rules: folds a history under both and collects all differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import duckdb

from ...projections.emitter import StageOutput
from ...rules.rules import RuleSet
from ..inputs import InputFile
from .decisions import DecisionDifferences, OutputComparison, RecordedDecisions
from .fold_incidents import STEPS, FoldIncident, How, IncidentCollector, IncidentShift, shifts
from .guard_replay import StoppedCall
from .replayed_calls import BROKE, WELL, CallPlace, Went, between, places, went
from .rules_replay import PresentRules, RecordedInputs, RulesReplay, fall_due_alike


class ComparedStreak(NamedTuple):
    """Streak or incident under one set of rules, with its call and effects."""

    time_ms: int  # start, milliseconds since 1970
    call: int  # which call of its session it began at, from 1 on; 0: before the first
    # session, call_id, event_id: of the event that completed it; `call_id` is empty where that is no call's
    session: str
    call_id: str
    event_id: str
    worst: str  # worst step that was reached
    nudges: str  # kinds of nudges that were issued, with their numbers, in words
    asked: int  # calls that a person would have been asked about
    refused: int  # calls that would have been refused
    went_well: int  # calls that were asked about or refused, and did their work in the recording
    broke: int  # calls that were asked about or refused, and broke in the recording or were denied by the user
    calls: tuple[tuple[str, str], ...]  # those calls, session and call id, oldest first


class ShiftReport(NamedTuple):
    """Difference of one streak or incident under other rules, for output."""

    how: How  # caught, lost, earlier, later or otherwise
    kind: str  # streak, trust or circuit
    workspace: str  # where; `user:NAME` where a user has lost trust everywhere
    subject: str  # pattern, key or circuit
    session: str  # that is stuck, or whose event began it
    # by how many calls of the session, or of the key, it comes earlier (negative: later); None where only one side sees
    # it
    calls_earlier: int | None
    seconds_earlier: float | None  # the same in seconds
    before: ComparedStreak | None  # under the first rules; None where they do not see it
    after: ComparedStreak | None  # under the other rules


class ComparisonResult(NamedTuple):
    """Result of a comparison, with information on its accuracy."""

    difference: DecisionDifferences  # between the decisions under two rules
    shifts: list[ShiftReport]  # streaks and incidents that differ, in the order of time
    alike: int  # number that do not differ
    # calls that would have been asked about or refused in all, by side (`before`, `after`) and how they went
    held: dict[str, Counter[str]]
    # what was decided when it was recorded, and how much of that was decided again under the first rules
    recorded: RecordedDecisions
    versions: int  # number of different rules in force, from the records; 0 if unknown
    ordered: bool = True  # whether the records have one order; over Kafka each partition has its own


def compare(
    material: RecordedInputs,
    present: PresentRules,
    other: RuleSet,
    *,
    decided: Iterable[tuple[str, str]] = (),
    examples: int = 3,
    advance: Callable[[], None] = lambda: None,
) -> ComparisonResult:
    """Compare the decisions of two sets of rules on the inputs of a history.

    `decided`: ids and records of those recorded decisions that are compared. At most `examples` of each kind are kept.
    `advance` is called for each folded input.
    """
    connection, inputs, passing, environment, guard = material
    recorded = RecordedDecisions(decided)
    comparison = OutputComparison(passing, examples=examples)
    echoes = fall_due_alike(*(present.recorded or (present.rules,)), other)
    before = RulesReplay(present, inputs, environment=environment, echoes=echoes, guard=guard)
    after = RulesReplay(other, inputs, environment=environment, echoes=echoes, guard=guard)
    sides = IncidentCollector(passing), IncidentCollector(passing)
    position = 0
    for position, (was, would) in enumerate(_side_by_side(before, after, inputs, advance)):
        for side, fold, outputs in zip(sides, (before, after), (was, would), strict=True):
            if fold.held:
                side.hold(fold.take_held())
            side.take(position, outputs)
        if was or would:
            recorded.find(was)
            comparison.take(was, would)
    differing, alike = shifts(sides[0].all, sides[1].all)
    told, held = _told(connection, differing, sides)
    source = connection.execute("SELECT source FROM recorded_from").fetchone()
    ordered = source is None or not source[0].startswith("kafka ")
    return ComparisonResult(comparison.finish(), told, alike, held, recorded, len(present.recorded), ordered)


def decisions_of(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str]]:
    """Ids and records of a history's decisions, with the filters of its connection."""
    cursor = connection.cursor()
    cursor.execute("SELECT id, record FROM decisions")
    while page := cursor.fetchmany(5000):
        yield from page


def _side_by_side(
    before: RulesReplay, after: RulesReplay, inputs: InputFile, advance: Callable[[], None]
) -> Iterator[tuple[list[StageOutput], list[StageOutput]]]:
    for given in inputs:
        yield before.feed(given), after.feed(given)
        advance()
    yield before.finish(), after.finish()


def _told(
    connection: duckdb.DuckDBPyConnection,
    differing: list[IncidentShift],
    sides: tuple[IncidentCollector, IncidentCollector],
) -> tuple[list[ShiftReport], dict[str, Counter[str]]]:
    """Differences for output, and the outcomes of the calls that each side stops."""
    every = [[held for one in side.all for held in one.held] for side in sides]
    ended = went(connection, {held.event_id for side in every for held in side})
    counts = {
        name: Counter[str](ended.get(held.event_id, "neither") for held in side)
        for name, side in zip(("before", "after"), every, strict=True)
    }
    where = places(connection, {one.cause for shift in differing for one in (*shift.before[:1], *shift.after[:1])})
    moved = [shift for shift in differing if shift.how in {"earlier", "later"}]
    firsts = [sorted((shift.before[0], shift.after[0]), key=lambda one: one.began) for shift in moved]
    of_keys = dict(zip(map(id, moved), between(connection, [(one, two) for one, two in firsts]), strict=True))
    return [_one(shift, where, ended, of_keys.get(id(shift), 0)) for shift in differing], counts


def _one(shift: IncidentShift, where: dict[str, CallPlace], ended: dict[str, Went], of_key: int) -> ShiftReport:
    before, after = _seen(shift.before, where, ended), _seen(shift.after, where, ended)
    calls: int | None = None
    seconds: float | None = None
    if before is not None and after is not None:
        seconds = (before.time_ms - after.time_ms) / 1000
        by_key = of_key if shift.how == "earlier" else -of_key
        calls = before.call - after.call if shift.one.kind == "streak" else by_key
    return ShiftReport(
        how=shift.how,
        kind=shift.one.kind,
        workspace=shift.one.workspace,
        subject=shift.one.subject,
        session=shift.one.session,
        calls_earlier=calls,
        seconds_earlier=seconds,
        before=before,
        after=after,
    )


def _seen(
    incidents: tuple[FoldIncident, ...], where: dict[str, CallPlace], ended: dict[str, Went]
) -> ComparedStreak | None:
    if not incidents:
        return None
    first = incidents[0]
    place = where.get(first.cause, CallPlace(first.session, "", "", 0))
    held: list[StoppedCall] = [one for incident in incidents for one in incident.held]
    how = Counter[str](ended.get(one.event_id, "neither") for one in held)
    nudges = Counter(kind for incident in incidents for kind in incident.nudges)
    return ComparedStreak(
        time_ms=first.time_ms,
        call=place.number,
        session=place.session,
        call_id=place.call_id,
        event_id=first.cause,
        worst=max(incidents, key=lambda one: STEPS.index(one.worst)).worst,
        nudges=", ".join(f"{count} {kind}" for kind, count in nudges.items()),
        asked=sum(not one.refused for one in held),
        refused=sum(one.refused for one in held),
        went_well=how[WELL],
        broke=how[BROKE],
        calls=tuple((one.session, one.call_id) for one in held),
    )
