"""Page of one session: timeline, loops and their costs, patterns, and the effect of nudges."""

from __future__ import annotations

from asyncio import Lock
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...history.findings import rated
from ...history.sessions.json_view import timeline_document
from ...history.sessions.paging import NextItems, TimelinePage, holds, part_of, ways_from
from ...history.sessions.timeline import (
    ItemKind,
    RepeatedCalls,
    TimedDecision,
    TimelineBuilder,
    TimelineDecision,
    TimelineEntries,
    TimelineEntry,
    TimelineMessage,
    TimelineNote,
    millis,
)
from ...history.sessions.timeline_calls import CallVerdict, Record, TimelineCall, shortened
from ...rules.rules import RuleSet
from ...schemas.decision_text import DecisionLine, line_of_record
from .render import PageContext, segment
from .source import DashboardSource, PlacedRecord

MAX_EVENTS = 50_000  # Latest events of a session that are read
NEWS = 500  # Number of latest events read of a session whose earlier events are cached

MAX_DECISIONS = 10_000

# Number of sessions whose timelines are cached, since readers page through them and live updates fetch them again
KEPT = 8

PAYLOAD_CHARS = 4096  # Characters of arguments and of a result that are shown unless all are asked for
MEMBERS = 20  # Maximum calls of a repetition that are listed individually
MAX_TITLE = 120  # Characters of a page's title

SHAPES = {
    TimelineMessage: "message",
    TimelineCall: "call",
    RepeatedCalls: "repeats",
    TimelineDecision: "decision",
    TimelineNote: "note",
}

# Shape and colour of each verdict; the word beside it says which it is
WORDS = {
    CallVerdict.SUCCEEDED: "ok",
    CallVerdict.FAILED: "blocked",
    CallVerdict.ANSWERED: "degraded",
    CallVerdict.DENIED: "escalated",
    CallVerdict.REFUSED: "open",
    CallVerdict.REJECTED: "open",
    CallVerdict.LOST: "unknown",
    CallVerdict.CANCELLED: "unknown",
    CallVerdict.CACHED: "unknown",
    CallVerdict.WAITING: "escalated",
    CallVerdict.PENDING: "recovering",
}


# Prefix of a decision's line, by kind
NAMES = {
    ItemKind.MESSAGE: "message",
    ItemKind.CALL: "call",
    ItemKind.PATTERN: "pattern",
    ItemKind.NUDGE: "nudge",
    ItemKind.TRUST: "trust",
    ItemKind.CIRCUIT: "circuit",
    ItemKind.PERMISSION: "approval",
    ItemKind.LIMIT: "suggestion",
    ItemKind.OTHER: "",
}


class TimelineQuery(NamedTuple):
    """Parsed query string; invalid values count as missing."""

    kinds: frozenset[ItemKind] = frozenset()  # kinds of items to show; empty: all
    only_errors: bool = False  # True to show only failures, and decisions about failures
    upto: int | None = None  # number of the item at which the page ends; None: the last one
    at: str = ""  # id of an event or decision that the page must contain; by default the first of `open`
    open: tuple[str, ...] = ()  # ids of calls and messages whose payload is shown, at most ten
    all: str = ""  # id in `open` whose payload is shown without a limit

    @classmethod
    def of(cls, request: Request) -> TimelineQuery:
        """Parse a query string."""
        query = request.query_params
        upto = query.get("upto", "")
        return cls(
            frozenset(ItemKind(one) for one in query.getlist("kind") if one in set(ItemKind)),
            query.get("only") == "errors",
            int(upto) if upto.isdecimal() and len(upto) < 10 else None,
            query.get("at", "") or query.get("open", ""),
            tuple(query.getlist("open")[:10]),
            query.get("all", ""),
        )


class FieldPayload(NamedTuple):
    """Content of a field of an event."""

    title: str  # name of the field: arguments, result, error, text
    text: str  # content, at most `PAYLOAD_CHARS` characters unless all of it was requested
    size: int  # number of characters of the whole content


class TimelineRow(NamedTuple):
    """Row of the timeline."""

    item: TimelineEntry  # item of the timeline
    shape: str  # kind of row, of `SHAPES`
    line: DecisionLine | None  # text of a decision; None for other items
    payloads: tuple[FieldPayload, ...] | None  # contents of its events; None unless requested
    ways: NextItems  # ids of the next failure and of the next decision
    asked: bool  # True if it holds the event that the page was asked for


class _CachedTimeline:
    """Cached timeline of a session, and the position up to which it has been read."""

    def __init__(self, session_id: str, rules: RuleSet) -> None:
        self.rules = rules
        self.reading = Lock()
        self.records: dict[str, Record] = {}
        self.telling = TimelineBuilder(session_id, rules, self.records)
        self.last = -1
        self.left_out = False
        self.stand: object = None
        self.told: TimelineEntries | None = None


class TimelineCache:
    """Cache of recently requested timelines; for an active session only new events are read."""

    def __init__(self, source: DashboardSource) -> None:
        """Create a cache for the sessions of this source."""
        self._source = source
        self._kept: OrderedDict[str, _CachedTimeline] = OrderedDict()

    async def timeline(self, session_id: str) -> TimelineEntries:
        """The timeline of a session as of now; without items where nothing is kept of it.

        Raises:
            QuestionUnanswered: looking for it in the recorded history took too long.
            HistoryError: the recorded history cannot be read.
        """
        kept = self._kept.get(session_id)
        if kept is None or kept.rules is not self._source.rules:
            kept = self._kept[session_id] = _CachedTimeline(session_id, self._source.rules)
        self._kept.move_to_end(session_id)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        async with kept.reading:
            return await self._up_to_date(session_id, kept)

    async def _up_to_date(self, session_id: str, kept: _CachedTimeline) -> TimelineEntries:
        events = await self._source.events(session=session_id, limit=NEWS)
        places = [one.offset for one in events if one.offset]
        if places and kept.last < places[0] and len(places) == NEWS:
            events = await self._source.events(session=session_id, limit=MAX_EVENTS)
            kept.left_out = len(events) >= MAX_EVENTS
        if not events and (recorded := await self._source.recorded(session_id)) is not None:
            return recorded
        decided = await self._source.decisions(session=session_id, limit=1)
        stand = places[-1:], [one.offset for one in decided], len(events) - len(places)
        if kept.told is not None and kept.stand == stand:
            return kept.told
        decisions = await self._source.decisions(session=session_id, limit=MAX_DECISIONS)
        if times := [millis(one.record["time"]) for one in (*events[:1], *events[-1:])]:
            began = kept.told.began_ms if kept.told is not None else None
            circuits = await self._source.circuits(min(times) if began is None else began, max(times))
            decisions = sorted([*decisions, *circuits], key=lambda one: one.offset)
        new = [one.record for one in events if not one.offset or one.offset > kept.last]
        if new:
            kept.records |= await self._source.records(session_id)

        def build() -> TimelineEntries:
            kept.telling.hear(new)
            return kept.telling.timeline(
                [TimedDecision(one.record, one.arrived_ms) for one in decisions], left_out=kept.left_out
            )

        kept.told = await run_in_threadpool(build)
        kept.last, kept.stand = max([kept.last, *places]), stand
        return kept.told


def rows_of(
    whole: TimelineEntries, part: TimelinePage, payloads: Mapping[str, tuple[FieldPayload, ...]], at: str = ""
) -> list[TimelineRow]:
    """Rows of a page."""
    ways = ways_from(whole.items, part.items)
    return [
        TimelineRow(
            item,
            SHAPES[type(item.what)],
            line_of_record(item.what.record) if isinstance(item.what, TimelineDecision) else None,
            payloads.get(item.id),
            ways[item.id],
            bool(at) and holds(item, at),
        )
        for item in part.items
    ]


async def payloads_of(
    source: DashboardSource, session_id: str, part: TimelinePage, asked: TimelineQuery
) -> dict[str, tuple[FieldPayload, ...]]:
    """Contents of the events of a page's opened items, by item id."""
    found: dict[str, tuple[FieldPayload, ...]] = {}
    for item in part.items:
        opened = next((one for one in asked.open if holds(item, one)), None)
        if opened is None:
            continue
        ids = [item.id]
        if isinstance(item.what, RepeatedCalls):
            call = next((one for one in item.what.calls if opened in one.events), item.what.calls[0])
            ids = call.events
        elif isinstance(item.what, TimelineCall):
            ids = item.what.events
        placed = await source.events_of(ids, session=session_id)
        whole = asked.all in {item.id, opened}
        found[item.id] = tuple(payload for one in placed for payload in _carried(one, whole=whole))
    return found


def _carried(placed: PlacedRecord, *, whole: bool) -> list[FieldPayload]:
    kept = placed.record.get("result_sketch") or {}
    record = placed.record | ({"result": told} if (told := kept.get("failure") or kept.get("text")) else {})
    names = ("args", "result", "error", "text", "context", "scenario", "reason", "settings")
    return [_payload(name, record[name], whole=whole) for name in names if record.get(name) not in (None, "", {})]


def _payload(title: str, value: Any, *, whole: bool) -> FieldPayload:
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    title = {"args": "arguments"}.get(title, title)
    return FieldPayload(title, text if whole else text[:PAYLOAD_CHARS], len(text))


def title_of(whole: TimelineEntries) -> str:
    """Title of a session: its first published message, else its first call; empty without either."""
    words = (
        one.what.text if isinstance(one.what, TimelineMessage) else f"{one.what.tool} {one.what.summary}"
        for one in whole.items
        if isinstance(one.what, TimelineMessage | TimelineCall)
    )
    return shortened(next((text for text in words if text.strip()), ""), MAX_TITLE)


def _failed(whole: TimelineEntries) -> str:
    """Failure rate of its calls, as in the list of sessions; empty if none failed."""
    judged = [call for call in whole.calls if call.counts_as in {"success", "failure"}]
    failed = sum(call.counts_as == "failure" and not call.expected for call in judged)
    return rated(failed, len(judged)) if failed else ""


def firsts_of(whole: TimelineEntries) -> NextItems:
    """Ids of the first failure and of the first decision of a session."""
    decision = (one.id for one in whole.items if isinstance(one.what, TimelineDecision))
    return NextItems(next((one.id for one in whole.items if one.failing), ""), next(decision, ""))


def session_url(session_id: str, event: str = "") -> str:
    """Path of a session's page; with an event, at that event."""
    path = f"/sessions/{segment(session_id)}"
    return f"{path}?at={segment(event)}#e-{segment(event)}" if event else path


def session_routes(site: PageContext) -> Sequence[Route]:
    """Routes of this page, as HTML and as JSON."""
    shelf = TimelineCache(site.source)

    async def session(request: Request) -> Response:
        """Render the page."""
        session_id, asked = request.path_params["id"], TimelineQuery.of(request)
        whole = await shelf.timeline(session_id)
        if not whole.items:
            return site.render(
                request, "message.html", status=404, title=f"Session {session_id}", back="/sessions",
                text="Nothing is kept of this session: nobody has published events of it here, or they are older.",
            )  # fmt: skip
        part = part_of(
            whole.items, kinds=asked.kinds, only_errors=asked.only_errors, upto=asked.upto, at=asked.at
        )  # fmt: skip
        payloads = await payloads_of(site.source, session_id, part, asked)
        return site.render(
            request,
            "session.html",
            session=whole,
            told=title_of(whole),
            starts=firsts_of(whole),
            part=part,
            rows=rows_of(whole, part, payloads, asked.at),
            asked=asked,
            kinds=list(ItemKind),
            words=WORDS,
            failed=_failed(whole),
            verdicts=[(one, count) for one in CallVerdict if (count := whole.counted(one))],
            members=MEMBERS,
            url=session_url,
            names=NAMES,
        )

    async def document(request: Request) -> Response:
        """Return the whole timeline as JSON."""
        whole = await shelf.timeline(request.path_params["id"])
        return Response(orjson.dumps(timeline_document(whole)), media_type="application/json")

    return [Route("/sessions/{id:path}", session), Route("/v1/sessions/{id:path}", document)]
