"""Sessions page: all sessions that have not ended, most urgent first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...history.findings import ratio
from ...history.plots import share_text
from ...history.sessions.calls import calls_of, shortened
from ...history.sessions.ranking import SessionSummary, ranked
from ...projections.tool.models import Z_95, wilson_bounds
from ...schemas.decision_text import counted, plain
from ...security.untrusted import visible
from .render import Site, segment
from .source import Placed

PAGE_ROWS = 50

LOOKED_AT = 6
"""Latest events of a session among which its last call is looked for."""

MAX_LAST = 160
"""Characters of what a session did last."""


class Asked(NamedTuple):
    """What the query string asks for.

    Attributes:
        state: `stuck`: only those that are stuck now; empty: all.
        workspace: only there; empty: everywhere.
        model: only this one; empty: all.
        text: only ids that hold it.
        page: from 1.
    """

    state: str = ""
    workspace: str = ""
    model: str = ""
    text: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Asked:
        """Read a query string; what is wrong in it counts as not asked."""
        page = query.get("page", "1")
        return cls(
            "stuck" if query.get("state") == "stuck" else "",
            query.get("workspace", ""),
            query.get("model", ""),
            query.get("q", "").strip(),
            max(1, int(page)) if page.isdecimal() and len(page) < 7 else 1,
        )


class Row(NamedTuple):
    """A session in words.

    Attributes:
        stuck: it is stuck now.
        reason: why it is where it is in the list.
        share: failed calls, with the interval in which the share lies (95 %).
        last: what it did last.
    """

    summary: SessionSummary
    url: str
    stuck: bool
    reason: str
    share: str
    last: str = ""


class SessionsPage(NamedTuple):
    """All that the page shows."""

    asked: Asked
    rows: Sequence[Row]
    total: int
    of: int
    stuck: int
    page: int
    last: int
    workspaces: Sequence[str]
    models: Sequence[str]


def sessions_page(sessions: Sequence[SessionSummary], asked: Asked, now_ms: int) -> SessionsPage:
    """The page for what is asked, without what each session did last."""
    taken = [
        one
        for one in sessions
        if asked.workspace in {"", one.workspace}
        and asked.model in {"", one.model}
        and asked.text.lower() in one.session_id.lower()
        and (not asked.state or one.stuck_now(now_ms))
    ]
    last = max(1, -(-len(taken) // PAGE_ROWS))
    page = min(asked.page, last)
    shown = ranked(taken, now_ms)[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    return SessionsPage(
        asked,
        [row_of(one, now_ms) for one in shown],
        len(taken),
        len(sessions),
        sum(one.stuck_now(now_ms) for one in sessions),
        page,
        last,
        _names(one.workspace for one in sessions),
        _names(one.model for one in sessions),
    )


def _names(given: Iterable[str]) -> list[str]:
    """Names to choose from; what cannot be shown as it is must be typed."""
    return sorted({one for one in given if one and visible(one) == one})[:200]


def row_of(one: SessionSummary, now_ms: int) -> Row:
    """A session in words."""
    worst, stuck = one.worst, one.stuck_now(now_ms)
    reason = ""
    if worst is not None:
        tool = f": {worst.tool}" if worst.tool else ""
        reason = f"{plain(worst.pattern)}{tool} ×{worst.times}" + ("" if stuck else ", and was left so")
    elif one.patterns:
        reason = f"{counted(one.patterns, 'pattern report')}, all over"
    return Row(one, f"/sessions/{segment(one.session_id)}", stuck, reason, _share(one))


def _share(one: SessionSummary) -> str:
    """Failure rate and its 95 % interval: `40 % (4/10), 17 % to 69 %`; empty without calls that succeeded or failed."""
    if not one.judged:
        return ""
    low, high = wilson_bounds(one.failed, one.judged, Z_95)
    return f"{ratio(one.failed, one.judged)}, {share_text(low)} to {share_text(high)}"


def last_words(events: Sequence[Placed]) -> str:
    """What a session did last: its latest call, or what it was told or said."""
    calls = calls_of(one.record for one in events)
    if calls:
        return shortened(f"{calls[-1].tool} {calls[-1].summary} {calls[-1].verdict}", MAX_LAST)
    for one in reversed(events):
        if one.record["type"] == "model.text":
            return shortened(f"model: {one.record.get('text') or ''}", MAX_LAST)
        if one.record["type"] == "user.message":
            return "the user wrote"
    return ""


def sessions_routes(site: Site) -> Sequence[Route]:
    """Path of this page."""

    async def sessions(request: Request) -> Response:
        """Every session, those to look at first on top."""
        now_ms = round(site.clock().timestamp() * 1000)
        page = sessions_page(await site.source.sessions(), Asked.of(request.query_params), now_ms)
        rows = [
            row._replace(last=last_words(await site.source.events(session=row.summary.session_id, limit=LOOKED_AT)))
            for row in page.rows
        ]
        return site.render(
            request, "sessions.html", found=page._replace(rows=rows), recorded=site.source.history is not None
        )

    return [Route("/sessions", sessions)]
