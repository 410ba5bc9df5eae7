"""The page of one session: its timeline, loops and their price, patterns and what nudges led to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...history.sessions.calls import Call, Verdict
from ...history.sessions.json_view import timeline_document
from ...history.sessions.paging import Part, Ways, holds, part_of, ways_from
from ...history.sessions.timeline import Decided, Decision, Item, Kind, Message, Note, Repeats, Timeline, timeline
from ...schemas.decision_words import Line, line_of
from .moments import millis
from .render import Site, segment
from .source import Placed, Source

MAX_EVENTS = 50_000
"""Latest events of a session that are read."""

MAX_DECISIONS = 10_000

KEPT = 8
"""Sessions whose timelines are kept until something new happens in them: pages of one are turned, and fetched live."""

PAYLOAD_CHARS = 4096
"""Characters of arguments and of a result that are shown unless all are asked for."""

MEMBERS = 20
"""Calls of repeats that are listed one by one."""

SHAPES = {Message: "message", Call: "call", Repeats: "repeats", Decision: "decision", Note: "note"}

WORDS = {
    Verdict.SUCCEEDED: "ok",
    Verdict.FAILED: "blocked",
    Verdict.ANSWERED: "degraded",
    Verdict.DENIED: "escalated",
    Verdict.NOT_MADE: "open",
    Verdict.LATE: "half-open",
    Verdict.LOST: "unknown",
    Verdict.CANCELLED: "unknown",
    Verdict.CACHED: "unknown",
    Verdict.WAITING: "escalated",
    Verdict.PENDING: "recovering",
}
"""Shape and colour of each verdict; the word beside it says which it is."""


NAMES = {
    Kind.MESSAGE: "message",
    Kind.CALL: "call",
    Kind.PATTERN: "pattern",
    Kind.NUDGE: "nudge",
    Kind.TRUST: "trust",
    Kind.CIRCUIT: "circuit",
    Kind.PERMISSION: "approval",
    Kind.LIMIT: "suggestion",
    Kind.OTHER: "",
}
"""What stands before a decision of each kind."""


class Asked(NamedTuple):
    """What the query string asks for.

    Attributes:
        kinds: of items; empty: all.
        only_errors: failures, and decisions that something went wrong.
        upto: where the page ends; None: at the end.
        at: id of an event or decision that the page must hold.
        open: ids of calls and messages whose payload is shown.
        all: of these, the one that is shown whole.
    """

    kinds: frozenset[Kind] = frozenset()
    only_errors: bool = False
    upto: int | None = None
    at: str = ""
    open: tuple[str, ...] = ()
    all: str = ""

    @classmethod
    def of(cls, request: Request) -> Asked:
        """Read a query string; what is wrong in it counts as not asked."""
        query = request.query_params
        upto = query.get("upto", "")
        return cls(
            frozenset(Kind(one) for one in query.getlist("kind") if one in set(Kind)),
            query.get("only") == "errors",
            int(upto) if upto.isdecimal() and len(upto) < 10 else None,
            query.get("at", ""),
            tuple(query.getlist("open")[:10]),
            query.get("all", ""),
        )


class Payload(NamedTuple):
    """What an event carries, in words of its publisher.

    Attributes:
        title: arguments, result, error, text.
        text: at most `PAYLOAD_CHARS` of it, unless all was asked for.
        size: characters of the whole.
    """

    title: str
    text: str
    size: int


class Row(NamedTuple):
    """An item and all that its row shows.

    Attributes:
        shape: which kind of row it is.
        line: of a decision: its words.
        payloads: where they are asked for.
        ways: to the next failure and decision.
    """

    item: Item
    shape: str
    line: Line | None
    payloads: tuple[Payload, ...] | None
    ways: Ways


class Shelf:
    """Timelines that were put together lately, until their sessions go on."""

    def __init__(self, source: Source) -> None:
        """Of sessions of this source."""
        self._source = source
        self._kept: OrderedDict[str, tuple[object, Timeline]] = OrderedDict()

    async def timeline(self, session_id: str) -> Timeline:
        """The timeline of a session as of now; without items where nothing is kept of it."""
        last = await self._source.events(session=session_id, limit=1)
        decided = await self._source.decisions(session=session_id, limit=1)
        stand = [one.offset for one in last], [one.offset for one in decided], id(self._source.rules)
        known = self._kept.get(session_id)
        if known is None or known[0] != stand:
            known = stand, await self._read(session_id)
        self._kept[session_id] = known
        self._kept.move_to_end(session_id)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return known[1]

    async def _read(self, session_id: str) -> Timeline:
        events = await self._source.events(session=session_id, limit=MAX_EVENTS)
        decisions = await self._source.decisions(session=session_id, limit=MAX_DECISIONS)
        times = [millis(one.record["time"]) for one in events]
        if times:
            circuits = await self._source.circuits(min(times), max(times))
            decisions = sorted([*decisions, *circuits], key=lambda one: one.offset)
        return await run_in_threadpool(
            timeline,
            session_id,
            [one.record for one in events],
            [Decided(one.record, one.arrived_ms) for one in decisions],
            rules=self._source.rules,
            left_out=len(events) >= MAX_EVENTS,
        )


def rows_of(whole: Timeline, part: Part, payloads: Mapping[str, tuple[Payload, ...]]) -> list[Row]:
    """Rows of a page."""
    ways = ways_from(whole.items, part.items)
    return [
        Row(
            item,
            SHAPES[type(item.what)],
            line_of(item.what.record) if isinstance(item.what, Decision) else None,
            payloads.get(item.id),
            ways[item.id],
        )
        for item in part.items
    ]


async def payloads_of(source: Source, session_id: str, part: Part, asked: Asked) -> dict[str, tuple[Payload, ...]]:
    """What the opened items of a page carry, by their ids."""
    found: dict[str, tuple[Payload, ...]] = {}
    for item in part.items:
        opened = next((one for one in asked.open if holds(item, one)), None)
        if opened is None:
            continue
        ids = [item.id]
        if isinstance(item.what, Repeats):
            call = next((one for one in item.what.calls if opened in one.events), item.what.calls[0])
            ids = call.events
        elif isinstance(item.what, Call):
            ids = item.what.events
        placed = await source.events_of(ids, session=session_id)
        whole = asked.all in {item.id, opened}
        found[item.id] = tuple(payload for one in placed for payload in _carried(one, whole=whole))
    return found


def _carried(placed: Placed, *, whole: bool) -> list[Payload]:
    record = placed.record
    names = ("args", "result", "error", "text", "context", "scenario", "reason", "settings")
    return [_payload(name, record[name], whole=whole) for name in names if record.get(name) not in (None, "", {})]


def _payload(title: str, value: Any, *, whole: bool) -> Payload:
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    title = {"args": "arguments"}.get(title, title)
    return Payload(title, text if whole else text[:PAYLOAD_CHARS], len(text))


def session_url(session_id: str, event: str = "") -> str:
    """Path of a session's page; with an event, at that event."""
    path = f"/sessions/{segment(session_id)}"
    return f"{path}?at={segment(event)}#e-{segment(event)}" if event else path


def session_routes(site: Site) -> Sequence[Route]:
    """Path of this page."""
    shelf = Shelf(site.source)

    async def session(request: Request) -> Response:
        """One session as a timeline."""
        session_id, asked = request.path_params["id"], Asked.of(request)
        whole = await shelf.timeline(session_id)
        if request.query_params.get("as") == "json":
            return Response(orjson.dumps(timeline_document(whole)), media_type="application/json")
        if not whole.items:
            return site.render(request, "session_missing.html", status=404, session_id=session_id)
        part = part_of(
            whole.items, kinds=asked.kinds, only_errors=asked.only_errors, upto=asked.upto, at=asked.at
        )  # fmt: skip
        payloads = await payloads_of(site.source, session_id, part, asked)
        return site.render(
            request,
            "session.html",
            session=whole,
            part=part,
            rows=rows_of(whole, part, payloads),
            asked=asked,
            kinds=list(Kind),
            words=WORDS,
            verdicts=[(one, count) for one in Verdict if (count := whole.counted(one))],
            members=MEMBERS,
            url=session_url,
            names=NAMES,
        )

    return [Route("/sessions/{id:path}", session)]
