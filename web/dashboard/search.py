"""Search page: keys, sessions and calls that hold a text, in the present and in the recorded history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .now import IncidentRow, row_of
from .render import PageContext, segment
from .session import session_url
from .source import Record, SearchResult

LEAST_CHARS = 2
MOST_CHARS = 200

LOOKED_AT = 2_000  # Maximum events that hold the text, of which the latest are shown

MAX_KEYS = 20
MAX_SESSIONS = 20
MAX_PLACES = 4  # Calls and messages shown of a session
AROUND = 60  # Characters shown before and after the text

# Fields of an event that are searched; of a result, what its publisher or its sketch keeps
FIELDS = ("args", "error", "text", "result", "result_sketch", "reason", "tool_name", "id", "call_id", "correlation_id")


class FoundExcerpt(NamedTuple):
    """Part of a text: what is in front of the searched text, that text as it stands there, and what is behind it."""

    front: str
    found: str
    behind: str


class SearchPlace(NamedTuple):
    """Event that holds the text: its place on its session's page, its time, tool or kind, field, and an excerpt."""

    url: str
    time: str
    what: str
    field: str
    excerpt: FoundExcerpt


class SessionFound(NamedTuple):
    """Session whose id or events hold the text: at most `MAX_PLACES` events, newest first, and how many more."""

    session_id: str
    url: str
    where: str
    places: list[SearchPlace]
    more: int = 0


def searched(records: Sequence[Record], text: str, known: Sequence[str] = ()) -> list[SessionFound]:
    """Sessions by their events, which are newest first; `known` are ids of sessions that hold the text themselves."""
    found = {one: SessionFound(one, session_url(one), "", []) for one in known}
    counted: set[tuple[str, str]] = set()
    for record in records:
        session = str(record.get("session_id", ""))
        hit = next(_hits(record, text), None)
        if hit is None and text.lower() not in session.lower():
            continue
        where = f"{record.get('workspace_id') or ''} {record.get('model') or ''}".strip()
        one = found.setdefault(session, SessionFound(session, session_url(session), where, []))
        if not one.where and where:
            one = found[session] = one._replace(where=where)
        call = session, str(record.get("call_id") or record["id"])
        if hit is None or call in counted:
            continue
        counted.add(call)
        if len(one.places) == MAX_PLACES:
            found[session] = one._replace(more=one.more + 1)
            continue
        field, excerpt = hit
        what = str(record.get("tool_name") or record["type"]).replace("model.text", "message")
        one.places.append(SearchPlace(session_url(session, record["id"]), record["time"], what, field, excerpt))
    return list(found.values())


def _hits(record: Record, text: str) -> Iterator[tuple[str, FoundExcerpt]]:
    for field in FIELDS:
        for leaf in _leaves(record.get(field)):
            at = leaf.lower().find(text.lower())
            if at >= 0:
                end = at + len(text)
                front = ("…" if at > AROUND else "") + leaf[max(0, at - AROUND) : at]
                behind = leaf[end : end + AROUND] + ("…" if len(leaf) > end + AROUND else "")
                yield {"args": "", "tool_name": ""}.get(field, field), FoundExcerpt(front, leaf[at:end], behind)


def _leaves(value: Any) -> Iterator[str]:
    """Every text of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)


def search_routes(site: PageContext) -> Sequence[Route]:
    """Route of this page."""

    def keys(text: str) -> list[IncidentRow]:
        now, board = site.clock(), site.source.board
        told = text.lower()
        ranked = board.ranking(round(now.timestamp() * 1000)).ranked(round(now.timestamp() * 1000))
        wanted = (
            one for one in ranked
            if any(told in part.lower() for part in (one.subject, one.error, *(part.key for part in one.parts)))
        )  # fmt: skip
        return [row_of(one, board, now) for one, _ in zip(wanted, range(MAX_KEYS), strict=False)]

    async def search(request: Request) -> Response:
        """Render the page."""
        text = request.query_params.get("q", "").strip()[:MOST_CHARS]
        got, found, decision = SearchResult([]), [], None
        if len(text) >= LEAST_CHARS:
            got, found = await site.source.search(text, LOOKED_AT), keys(text)
            decision = await site.source.decision(text)
        sessions = await run_in_threadpool(searched, got.records, text, got.sessions)
        return site.render(
            request, "search.html", text=text, least=LEAST_CHARS, keys=found, sessions=sessions[:MAX_SESSIONS],
            more=len(sessions) - MAX_SESSIONS, left_out=got.left_out,
            decision=f"/decisions/{segment(text)}" if decision is not None else "",
        )  # fmt: skip

    return [Route("/search", search)]
