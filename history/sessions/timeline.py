"""Timeline of a session: messages, calls and their verdicts, patterns, nudges and their effect.

Theory of operation. Each event becomes an item at its position in the log, a call at its start. Each decision follows
the last event that caused it. Consecutive calls with the same arguments and the same result are merged into one item
that counts them. Loops are counted over the whole session, as the view `loops` of history does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import accumulate
from typing import Any, NamedTuple

from ...rules.rules import RuleSet
from ...schemas.event_base import epoch_ms
from .evidence import ladder_of
from .timeline_calls import TOLD, CallAssembler, CallVerdict, Record, TimelineCall, shortened

TEXT_CHARS = 200  # Maximum characters of a message in the timeline
FOLDED_FROM = 3  # Minimum number of equal consecutive calls that are merged: two are shown as two
LOOP_FROM = 3  # Number of equal calls that make a loop, as in the view `loops`
DELIVERED_MS = 60_000  # Delay after which a decision came too late to be delivered to the agent (`nudges.delivered`)


class ItemKind(StrEnum):
    """Kind of an item; the values of the filter."""

    MESSAGE = "messages"
    CALL = "calls"
    PATTERN = "patterns"
    NUDGE = "nudges"
    TRUST = "escalations"
    CIRCUIT = "circuits"
    PERMISSION = "approvals"
    LIMIT = "suggestions"
    OTHER = "other"


_KINDS = {
    "user.message": ItemKind.MESSAGE, "model.text": ItemKind.MESSAGE,
    "permission.requested": ItemKind.PERMISSION, "permission.resolved": ItemKind.PERMISSION,
    "pattern.detected": ItemKind.PATTERN, "pattern.cleared": ItemKind.PATTERN,
    "nudge.issued": ItemKind.NUDGE, "nudge.judged": ItemKind.NUDGE, "nudge.withdrawn": ItemKind.NUDGE,
    "feedback.false_alarm": ItemKind.NUDGE, "session.restored": ItemKind.NUDGE,
    "trust.changed": ItemKind.TRUST, "trust.recovery_pending": ItemKind.TRUST, "trust.danger_noted": ItemKind.TRUST,
    "breaker.changed": ItemKind.CIRCUIT, "breaker.probe_granted": ItemKind.CIRCUIT,
    "breaker.probe_denied": ItemKind.CIRCUIT,
    "model_switch.suggested": ItemKind.LIMIT, "confidence.low": ItemKind.LIMIT, "guarantee.warned": ItemKind.LIMIT,
    "guarantee.violated": ItemKind.LIMIT,
}  # fmt: skip

_OUTCOMES = frozenset({"nudge.judged", "nudge.withdrawn"})  # Types of decisions about an issued nudge
_QUIET = frozenset({"time.passed", "breaker.probe_requested"})  # Types of events that are not shown


class TimedDecision(NamedTuple):
    """Decision and its time."""

    record: Record
    arrived_ms: int = -1  # arrival of its input, milliseconds since 1970; -1 if unknown


class TimelineMessage(NamedTuple):
    """Message of a user or a model."""

    who: str  # `user` or `model`
    text: str  # at most `TEXT_CHARS` of it in one line; empty if only a digest was published
    size: int | None = None  # characters of the whole text; None if the text is unknown
    thought: bool = False  # True for reasoning


class RepeatedCalls(NamedTuple):
    """At least `FOLDED_FROM` consecutive calls with the same arguments and the same result."""

    calls: tuple[TimelineCall, ...]

    @property
    def duration_ms(self) -> float | None:
        """Total milliseconds of all calls; None if unknown."""
        measured = [call.duration_ms for call in self.calls if call.duration_ms is not None]
        return sum(measured) if measured else None


class NudgeEntry(NamedTuple):
    """Nudge and its effect."""

    id: str  # id of the `nudge.issued`
    at_ms: int  # time, milliseconds since 1970
    kind: str  # `gentle`, `direct` or `interrupt`
    # `followed`, `ignored` or `unknown`: not evaluated, or superseded by the user or the end of the session
    effect: str
    delivered: bool | None  # True if the agent could see it; None if unknown
    false_alarm: bool  # True if it was reported as a false alarm


class StreakStep(NamedTuple):
    """Severity that a streak reached: repetitions, time, and id of the decision."""

    severity: str
    times: int
    at_ms: int
    id: str


class PatternStreak(NamedTuple):
    """Pattern from its first detection to its end."""

    pattern: str  # as in the contract
    agent: str  # agent of the session; empty for the main agent
    steps: tuple[StreakStep, ...]  # severities it reached, oldest first
    # thresholds of its severities, mildest first; None if they do not follow from these rules
    ladder: tuple[int, ...] | None
    rule: str  # name of that ladder below `behaviour`
    cleared_ms: int | None  # time of its end; None while open
    nudges: tuple[NudgeEntry, ...]  # nudges issued because of it
    tools: tuple[str, ...]  # repeated tools, each once
    request: str = ""  # latest call that shows it; empty for a pattern of texts
    message: str = ""  # what a person should be told about it; empty if nobody should


class TimelineDecision(NamedTuple):
    """Decision in the timeline."""

    record: Record  # the decision in the wire format
    streak: PatternStreak | None = None  # streak that a pattern or nudge belongs to
    nudge: NudgeEntry | None = None  # effect of a nudge
    elsewhere: bool = False  # True if its last cause is an event of another session


class TimelineNote(NamedTuple):
    """Other event: a turn, the end of the session, a plugin's report, changed settings."""

    record: Record


class TimelineEntry(NamedTuple):
    """Line of the timeline."""

    id: str  # id of its first event or of the decision; used in links (`#e-ID`)
    kind: ItemKind  # kind used by the filter
    at_ms: int  # milliseconds since 1970
    agent: str  # agent of the session; empty for the main agent
    turn: int | None  # turn; None if unknown
    failing: bool  # True for a failure, or a decision about a fault
    what: TimelineMessage | TimelineCall | RepeatedCalls | TimelineDecision | TimelineNote  # content of the line


class CallLoop(NamedTuple):
    """The same call with the same result, three times or more, with nothing new done by other calls in between."""

    calls: tuple[TimelineCall, ...]  # its calls, oldest first; all but the first were wasted
    tool_ms: float | None  # total milliseconds of the wasted calls; None if unknown
    lasted_ms: int  # milliseconds from the end of the first call to the end of the last, including other activity
    cost_usd: float | None  # US dollars of the wasted calls; None if unknown
    share: float  # wasted calls as a fraction of the session's calls

    @property
    def wasted(self) -> int:
        """Number of wasted calls."""
        return len(self.calls) - 1


class TimelineEntries(NamedTuple):
    """Timeline of a session."""

    # session_id, workspace, user: from its events; empty if unknown
    session_id: str
    workspace: str
    user: str
    models: tuple[str, ...]  # models in order of appearance
    agents: tuple[str, ...]  # subagents
    # began_ms, ended_ms: time of the first and the last event; None without events
    began_ms: int | None
    ended_ms: int | None
    over: bool  # True if the session has ended
    items: tuple[TimelineEntry, ...]  # oldest first
    calls: tuple[TimelineCall, ...]  # oldest first
    loops: tuple[CallLoop, ...]  # loops, most wasted calls first
    streaks: tuple[PatternStreak, ...]  # patterns, oldest first
    cost_usd: float | None  # US dollars of all calls; None if unknown
    left_out: bool  # True if there are older events that were not read

    def counted(self, *verdicts: CallVerdict) -> int:
        """Number of calls with one of these verdicts."""
        return sum(call.verdict in verdicts for call in self.calls)

    @property
    def stuck(self) -> tuple[PatternStreak, ...]:
        """Open patterns."""
        return () if self.over else tuple(streak for streak in self.streaks if streak.cleared_ms is None)


def timeline(
    session_id: str,
    events: Iterable[Record],
    decisions: Iterable[TimedDecision] = (),
    *,
    rules: RuleSet | None = None,
    records: Mapping[str, Record] | None = None,
    left_out: bool = False,
) -> TimelineEntries:
    """Timeline of a session.

    Args:
        session_id: id of the session; events of others are ignored.
        events: in the order of the log; those that the engine appended may stand anywhere.
        decisions: in the order in which they were made; those about circuits may be others' too: of them only those
            are told that this session caused, or that hold for a tool or service it called.
        rules: rules for thresholds, and for calls without a record; default: the default rules.
        records: records of its calls, by the event that ended each.
        left_out: True if older events were not read.
    """
    telling = TimelineBuilder(session_id, rules, records)
    telling.hear(events)
    return telling.timeline(decisions, left_out=left_out)


class TimelineBuilder:
    """Incremental builder of a timeline; takes the arguments of `timeline`."""

    def __init__(
        self, session_id: str, rules: RuleSet | None = None, records: Mapping[str, Record] | None = None
    ) -> None:
        """Start before the first event."""
        self._session = session_id
        self._rules = rules or RuleSet()
        self._calls = CallAssembler(rules, records)
        self._seen: dict[str, int] = {}
        self._began: int | None = None
        self._ended: int | None = None
        self._placed: list[tuple[int, int, TimelineEntry]] = []
        self._times: list[int] = []
        self._models: dict[str, None] = {}
        self._agents: dict[str, None] = {}
        self._false_alarms: set[str] = set()
        self._workspace = self._user = ""
        self._over = False

    def hear(self, events: Iterable[Record]) -> None:
        """Add events; those of other sessions, and duplicates, are ignored."""
        for event in events:
            if event.get("session_id") == self._session and event.get("id") not in self._seen:
                self._event(event)

    def timeline(self, decisions: Iterable[TimedDecision] = (), *, left_out: bool = False) -> TimelineEntries:
        """Timeline of the events so far, with the given decisions."""
        kept = self._concerning(_once(decisions))
        streaks = self._streaks(kept)
        by_decision = {id_: streak for streak, ids in streaks for id_ in ids}
        placed = [*self._placed, *self._decisions(kept, by_decision)]
        items = tuple(_folded([item for _, _, item in sorted(placed, key=lambda one: one[:2])]))
        calls = tuple(self._calls.made)
        costs = [call.cost_usd for call in calls if call.cost_usd is not None]
        return TimelineEntries(
            self._session, self._workspace, self._user, tuple(self._models), tuple(self._agents),
            self._began, self._ended, self._over, items, calls, loops_of(calls),
            tuple(streak for streak, _ in streaks), sum(costs) if costs else None, left_out,
        )  # fmt: skip

    def _event(self, event: Record) -> None:
        place = len(self._seen)
        self._seen[str(event["id"])] = place
        kind = str(event["type"])
        at = millis(event["time"])
        self._times.append(at)
        if kind not in _QUIET and not _is_appended(event):
            self._began = at if self._began is None else min(self._began, at)
            self._ended = at if self._ended is None else max(self._ended, at)
        self._workspace = event.get("workspace_id") or self._workspace
        self._user = event.get("user_id") or self._user
        if model := event.get("model"):
            self._models.setdefault(str(model))
        if agent := event.get("agent_id"):
            self._agents.setdefault(str(agent))
        if kind == "session.ended":
            self._over = True
        elif kind not in _QUIET:
            self._over = False
        call = self._calls.add(event)
        if kind in TOLD:
            if call is not None and call.id == event["id"]:
                # Whether it failed is known only at its end: `_folded` updates it.
                self._place(
                    place,
                    TimelineEntry(
                        call.id, ItemKind.CALL, call.started_ms, call.agent, call.turn, failing=False, what=call
                    ),
                )
            elif (call is None and kind == "permission.requested") or kind == "permission.resolved":
                self._place(place, _item(event, TimelineNote(event), at))
            return
        if kind == "feedback.false_alarm":
            self._false_alarms.add(str(event.get("output_id")))
        if kind in {"user.message", "model.text"}:
            text = event.get("text")
            size = len(text) if isinstance(text, str) else None
            who = "user" if kind == "user.message" else "model"
            said = TimelineMessage(who, shortened(text or "", TEXT_CHARS), size, bool(event.get("thought")))
            self._place(place, _item(event, said, at))
        elif kind not in _QUIET and kind != "turn.started" and (kind != "turn.ended" or event.get("stalled")):
            self._place(place, _item(event, TimelineNote(event), at))

    def _place(self, place: int, item: TimelineEntry) -> None:
        self._placed.append((place, 0, item))

    def _concerning(self, decisions: Iterable[TimedDecision]) -> list[TimedDecision]:
        """Decisions about the session, and changes of circuits that it caused or that applied to its calls."""
        scopes = {
            scope
            for call in self._calls.made
            for scope in (f"tool:{call.tool}", f"service:{call.service}", f"tier:{call.tier}")
        }
        return [one for one in decisions if self._concerns(one.record, scopes)]

    def _concerns(self, decision: Record, scopes: set[str]) -> bool:
        if decision.get("session_id") == self._session:
            return True
        if decision.get("type") != "breaker.changed" or self._began is None or self._ended is None:
            return False
        causes = decision.get("caused_by") or ()
        if causes and causes[-1] in self._seen:
            return True
        same_workspace = (decision.get("workspace_id") or "default") == (self._workspace or "default")
        return (
            same_workspace
            and decision["breaker_key"] in scopes
            and self._began <= millis(decision["time"]) <= self._ended
        )

    def _streaks(self, decisions: Sequence[TimedDecision]) -> list[tuple[PatternStreak, list[str]]]:
        ends = {one["nudge_id"]: one for one, _ in decisions if one["type"] in _OUTCOMES}
        open_: dict[tuple[str, str, str], int] = {}
        made: list[tuple[PatternStreak, list[str]]] = []
        of_step: dict[str, int] = {}
        of_nudge: dict[str, int] = {}
        for record, arrived in decisions:
            kind = record["type"]
            if kind == "pattern.detected":
                place = record["pattern"], record.get("fingerprint") or "", record.get("agent_id") or ""
                number = open_.get(place)
                if number is None:
                    number = open_[place] = len(made)
                    made.append((PatternStreak(place[0], place[2], (), None, "", None, (), ()), []))
                streak, ids = made[number]
                made[number] = self._grown(streak, record), ids
                ids.append(record["id"])
                of_step[record["id"]] = number
            elif kind == "pattern.cleared":
                place = record["pattern"], record.get("fingerprint") or "", record.get("agent_id") or ""
                number = open_.pop(place, None)
                if number is not None:
                    streak, ids = made[number]
                    made[number] = streak._replace(cleared_ms=millis(record["time"])), ids
                    ids.append(record["id"])
            elif kind == "nudge.issued" and record.get("pattern_id") in of_step:
                number = of_step[record["pattern_id"]]
                streak, ids = made[number]
                made[number] = (
                    streak._replace(nudges=(*streak.nudges, self._nudge(record, arrived, ends.get(record["id"])))),
                    ids,
                )
                ids.append(record["id"])
                of_nudge[record["id"]] = number
            elif kind in _OUTCOMES and record["nudge_id"] in of_nudge:
                made[of_nudge[record["nudge_id"]]][1].append(record["id"])
        return made

    def _grown(self, streak: PatternStreak, record: Record) -> PatternStreak:
        step = StreakStep(record["severity"], int(record["repetitions"]), millis(record["time"]), record["id"])
        found = ladder_of(record, self._rules)
        tools = tuple(dict.fromkeys((*streak.tools, *(record.get("tool_sequence") or ()))))
        return streak._replace(
            steps=(*streak.steps, step),
            ladder=found[1].steps if found else None,
            rule=found[0] if found else "",
            tools=tools,
            request=record.get("request") or "",
            message=(record.get("message") or "") if record.get("notify_user") else streak.message,
        )

    def _nudge(self, record: Record, arrived_ms: int, end: Record | None) -> NudgeEntry:
        effective = end.get("effective") if end else None
        effect = "unknown" if effective is None else "followed" if effective else "ignored"
        at = millis(record["time"])
        delivered = None if arrived_ms < 0 else arrived_ms - at <= DELIVERED_MS and (not end or effective is not None)
        return NudgeEntry(
            record["id"], at, record["nudge_type"], effect, delivered, false_alarm=record["id"] in self._false_alarms
        )

    def _decisions(
        self, decisions: Sequence[TimedDecision], streaks: dict[str, PatternStreak]
    ) -> Iterable[tuple[int, int, TimelineEntry]]:
        """Items of decisions, each with the position of its last cause."""
        nudges = {
            nudge.id: nudge for streak in {id(one): one for one in streaks.values()}.values() for nudge in streak.nudges
        }
        latest = list(accumulate(self._times, max))
        for number, (record, _) in enumerate(decisions, 1):
            streak = streaks.get(record["id"])
            if record["type"] in _OUTCOMES and streak is not None:
                continue  # the nudge has its effect
            at = millis(record["time"])
            causes = record.get("caused_by") or ()
            place = self._seen.get(causes[-1]) if causes else None
            elsewhere = place is None
            if place is None:
                place = bisect_right(latest, at) - 1
            what = TimelineDecision(record, streak, nudges.get(record["id"]), elsewhere)
            yield place, number, _item(record, what, at)


def loops_of(calls: Sequence[TimelineCall]) -> tuple[CallLoop, ...]:
    """Loops among the calls of a session, most wasted calls first."""
    runs: dict[tuple[str, str], list[list[TimelineCall]]] = {}
    for call in calls:
        if not call.times:
            continue
        of_result = runs.setdefault((call.fingerprint, call.result), [])
        if call.times == 1 or not of_result:
            of_result.append([])
        of_result[-1].append(call)
    found = [_loop(run, len(calls)) for of_result in runs.values() for run in of_result if run[-1].times >= LOOP_FROM]
    return tuple(sorted(found, key=lambda loop: (-loop.wasted, loop.calls[0].started_ms)))


def _loop(run: Sequence[TimelineCall], of_calls: int) -> CallLoop:
    wasted = run[1:]
    measured = [call.duration_ms for call in wasted if call.duration_ms is not None]
    costs = [call.cost_usd for call in wasted if call.cost_usd is not None]
    lasted = (run[-1].ended_ms or run[-1].started_ms) - (run[0].ended_ms or run[0].started_ms)
    return CallLoop(
        tuple(run), sum(measured) if measured else None, lasted, sum(costs) if costs else None, len(wasted) / of_calls
    )


def millis(time: str) -> int:
    """Milliseconds since 1970 of an RFC 3339 text."""
    return epoch_ms(datetime.fromisoformat(time))


def _item(record: Record, what: TimelineMessage | TimelineDecision | TimelineNote, at: int) -> TimelineEntry:
    kind = _KINDS.get(record["type"], ItemKind.OTHER)
    turn = record.get("turn_index")
    return TimelineEntry(record["id"], kind, at, record.get("agent_id") or "", turn, _is_bad(record), what)


def _is_bad(record: Record) -> bool:
    """True if an event or decision is about a fault."""
    match record["type"]:
        case "trust.changed":
            return str(record["to"]) in {"escalated", "blocked"}
        case "breaker.changed":
            return str(record["to"]) == "open"
        case "pattern.detected":
            return str(record["severity"]) != "minor"
        case "failure.reported" | "guarantee.violated":
            return True
        case "turn.ended":
            return bool(record.get("stalled"))
    return False


def _is_appended(event: Record) -> bool:
    return (
        event["type"] == "tool_call.finished"
        and event.get("status") in {"timeout", "lost"}
        and (event.get("correlation_id") is not None and "duration_ms" not in event)
    )


def _once(decisions: Iterable[TimedDecision]) -> Iterable[TimedDecision]:
    """Decisions without duplicates, which a crash can cause."""
    seen: set[Any] = set()
    for one in decisions:
        if one.record.get("id") not in seen:
            seen.add(one.record.get("id"))
            yield one


def _folded(items: Sequence[TimelineEntry]) -> Iterable[TimelineEntry]:
    """Items with consecutive equal calls merged, and with the final state of calls."""
    run: list[TimelineEntry] = []
    for item in items:
        call = item.what
        if run and not (isinstance(call, TimelineCall) and call.same_as(run[-1].what)):  # type: ignore[arg-type]
            yield from _run(run)
            run = []
        if isinstance(call, TimelineCall):
            run.append(item._replace(failing=call.failing))
        else:
            yield item
    yield from _run(run)


def _run(run: Sequence[TimelineEntry]) -> Iterable[TimelineEntry]:
    if len(run) < FOLDED_FROM:
        yield from run
        return
    calls = tuple(item.what for item in run if isinstance(item.what, TimelineCall))
    yield run[0]._replace(what=RepeatedCalls(calls))
