"""Sessions page: all sessions that have not ended, most urgent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...history.findings import rated
from ...history.sessions.ranking import SessionSummary, ranked
from ...history.sessions.timeline_calls import calls_of, shortened
from ...schemas.decision_text import counted
from ...security.untrusted import visible
from .render import PageContext, page_within, positive, segment
from .source import PlacedRecord

PAGE_ROWS = 50

INCIDENTS = ("waiting", "stuck", "unknown", "abandoned")  # States of incidents of sessions
LOOKED_AT = 6  # Number of latest events of a session that are searched for its last call
MAX_TOLD = 1_000  # Sessions whose last action is kept
MAX_LAST = 160  # Maximum characters of a session's last action


class SessionsQuery(NamedTuple):
    """Parsed query string; invalid values count as missing."""

    state: str = ""  # state of the incidents to show, of `INCIDENTS`; empty: all sessions
    workspace: str = ""  # workspace to show; empty: all
    model: str = ""  # model to show; empty: all
    text: str = ""  # text that the ids contain; empty: any
    page: int = 1  # page of the list, from 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> SessionsQuery:
        """Parse a query string."""
        return cls(
            state if (state := query.get("state", "")) in INCIDENTS else "",
            query.get("workspace", ""),
            query.get("model", ""),
            query.get("q", "").strip(),
            positive(query.get("page")),
        )


class SessionRow(NamedTuple):
    """Row of the list."""

    summary: SessionSummary  # the session
    url: str  # its page
    state: str  # state of its incident, or `ok`
    reason: str  # reason of its place in the list
    share: str  # failure rate with its counts and its 95 % interval
    last: str = ""  # its last action


class SessionsPage(NamedTuple):
    """Content of the page; `of` counts all sessions, `total` those that match, `counts` those of each state."""

    asked: SessionsQuery
    rows: Sequence[SessionRow]
    total: int
    of: int
    counts: Mapping[str, int]
    page: int
    last: int
    workspaces: Sequence[str]
    models: Sequence[str]


def sessions_page(sessions: Sequence[SessionSummary], asked: SessionsQuery, now_ms: int) -> SessionsPage:
    """Content of the page for a query string, without the last action of each session."""
    taken = [
        one
        for one in sessions
        if asked.workspace in {"", one.workspace}
        and asked.model in {"", one.model}
        and asked.text.lower() in one.session_id.lower()
        and (not asked.state or one.state(now_ms) == asked.state)
    ]
    page, last = page_within(asked.page, len(taken), PAGE_ROWS)
    shown = ranked(taken, now_ms)[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    return SessionsPage(
        asked,
        [row_of(one, now_ms) for one in shown],
        len(taken),
        len(sessions),
        Counter(one.state(now_ms) for one in sessions),
        page,
        last,
        _names(one.workspace for one in sessions),
        _names(one.model for one in sessions),
    )


def _names(given: Iterable[str]) -> list[str]:
    """Names for completion, sorted, at most 200; names with invisible characters are left out."""
    return sorted({one for one in given if one and visible(one) == one})[:200]


def row_of(one: SessionSummary, now_ms: int) -> SessionRow:
    """Row of a session."""
    found = one.incident(now_ms)
    reason = found.reason if found is not None else ""
    if found is None and one.patterns:
        reason = f"{counted(one.patterns, 'pattern report')}, all over"
    share = rated(one.failed, one.judged) if one.judged else ""
    return SessionRow(one, f"/sessions/{segment(one.session_id)}", one.state(now_ms), reason, share)


def last_words(events: Sequence[PlacedRecord]) -> str:
    """Last action of a session: its latest call, else its latest message; empty if neither is known."""
    calls = calls_of(one.record for one in events)
    if calls:
        last = calls[-1]
        word = "failed" if last.counts_as == "failure" and not last.expected else last.verdict
        return shortened(f"{last.tool} {last.summary} {word}", MAX_LAST)
    for one in reversed(events):
        if one.record["type"] == "model.text":
            return shortened(f"model: {one.record.get('text') or ''}", MAX_LAST)
        if one.record["type"] == "user.message":
            return "the user wrote"
    return ""


def sessions_routes(site: PageContext) -> Sequence[Route]:
    """Route of this page."""
    told: dict[str, tuple[tuple[int, ...], str]] = {}

    async def last_of(one: SessionSummary) -> str:
        """Last action of a session, kept until it has done more."""
        stand = one.last_ms, one.calls, one.pending, one.judged
        kept = told.get(one.session_id)
        if kept is None or kept[0] != stand:
            if len(told) >= MAX_TOLD:
                told.clear()
            words = last_words(await site.source.events(session=one.session_id, limit=LOOKED_AT))
            kept = told[one.session_id] = stand, words
        return kept[1]

    async def sessions(request: Request) -> Response:
        """Render the page."""
        now_ms = round(site.clock().timestamp() * 1000)
        page = sessions_page(await site.source.sessions(), SessionsQuery.of(request.query_params), now_ms)
        rows = [row._replace(last=await last_of(row.summary)) for row in page.rows]
        past = site.source.history
        recorded = past is not None and past.is_dir() and not site.source.foreign
        return site.render(request, "sessions.html", found=page._replace(rows=rows), recorded=recorded)

    return [Route("/sessions", sessions)]
