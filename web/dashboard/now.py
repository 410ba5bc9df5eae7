"""Now page: keys and sessions that need attention, tools by health, and recent decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...history.sessions.timeline import millis
from ...schemas.decision_text import (
    Line,
    circuit_next,
    circuit_state_reason,
    counted,
    failures_words,
    line_of,
    measured_failures,
    place_of,
    plain,
    recovery_words,
    repeated_calls,
    times,
)
from ...schemas.public_state import BreakerUpdated, DecisionBase, QualityUpdated, TrustUpdated
from ...schemas.vocabulary import BreakerMode, BreakerState, TrustState
from .current_state import Board
from .order_labels import orders_for
from .ranking import TROUBLE, WORDS, Place, Ranked, Ranking, StuckSession
from .render import Site, page_within, positive, segment, sentence

PAGE_ROWS = 50
TOOL_ROWS = 15
FEED_ROWS = 20

MAX_REASON = 300
"""Maximum characters of a reason on this page; the page of the decision shows all of it."""

SPARK_MS = 3_600_000
"""Time range of the sparklines, in milliseconds: an hour."""


class Asked(NamedTuple):
    """Parsed query string; invalid values count as missing.

    Attributes:
        state: a word of the ranking, `needed` (all words of `TROUBLE`) or `all`.
        workspace: workspace to show; empty: all.
        text: text that the keys contain; empty: any.
        page: page of the list, from 1.
    """

    state: str = "needed"
    workspace: str = ""
    text: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Asked:
        """Parse a query string."""
        state = query.get("state", "needed")
        return cls(
            state if state in {*WORDS, "all"} else "needed",
            query.get("workspace", ""),
            query.get("q", "").strip(),
            positive(query.get("page")),
        )

    @property
    def words(self) -> Sequence[str]:
        """Words of the ranking that are shown; they are adjacent in it."""
        if self.state == "needed":
            return TROUBLE
        return WORDS[:-1] if self.state == "all" else (self.state,)

    def matches(self, place: Place) -> bool:
        """True if a place has the workspace and the text; its word does not count."""
        return self.workspace in {"", place.workspace} and (
            not self.text or self.text.lower() in place.key.partition("\x1f")[2].lower() or self.text in place.tool
        )


class Row(NamedTuple):
    """Row of the list: a key or a stuck session.

    Attributes:
        id: id of its element on the page.
        word: one of `WORDS`; gives shape and colour.
        text: text beside the shape.
        title: key, or session id.
        url: page of the key or session.
        where: workspace, or user.
        reason: reason of the state, one sentence.
        why_url: page of the decision that caused the state; empty if unknown.
        value: count beside its threshold: `3/5`.
        since: start of the state, RFC 3339.
        onward: next change without intervention.
        orders: names in `ORDERS`, the one that resolves it first.
        about: hidden fields of the form that sends the orders.
    """

    id: str
    word: str
    text: str
    title: str
    url: str
    where: str
    reason: str
    why_url: str
    value: str
    since: str
    onward: str
    orders: tuple[str, ...]
    about: Mapping[str, str]


class ToolRow(NamedTuple):
    """Row of the table of tools.

    Attributes:
        word: word of its worst key; gives shape and colour.
        name: tool or service.
        url: its page.
        where: workspace.
        failures: counted failures in the last hour.
        ticks: positions of these on the sparkline: 0 an hour ago, 100 now.
        keys: number of its keys, circuits and scores that differ from their default.
    """

    word: str
    name: str
    url: str
    where: str
    failures: int
    ticks: tuple[float, ...]
    keys: int


class FeedLine(NamedTuple):
    """Decision of the feed: its text, its page, and the page of its session."""

    time: str
    line: Line
    url: str
    session: str
    session_url: str


class NowPage(NamedTuple):
    """Content of the page.

    Attributes:
        asked: query string.
        rows: this page of the list.
        counts: words and their numbers of places, worst first, filtered by workspace and text.
        total: number of rows on all pages of the list.
        page, last: number of this page and of the last one, from 1.
        tools: tools, the worst first, at most `TOOL_ROWS`.
        feed: latest decisions, newest first.
        workspaces: names of all workspaces, for completion.
        empty: reason why there are no rows: `nothing` was recorded, nothing `matches`, all is `well`, or data does not
            arrive (`fault`); empty if there are rows.
        measured: number of tools, as text.
    """

    asked: Asked
    rows: Sequence[Row]
    counts: Sequence[tuple[str, int]]
    total: int
    page: int
    last: int
    tools: Sequence[ToolRow]
    feed: Sequence[FeedLine]
    workspaces: Sequence[str]
    empty: str
    measured: str


def now_page(board: Board, asked: Asked, now: datetime, *, fault: str | None = None) -> NowPage:
    """Content of the page for a query string; `fault` is the reason why no data arrives, None if it does."""
    now_ms = round(now.timestamp() * 1000)
    ranking = board.ranking(now_ms)
    ranked = ranking.ranked(now_ms)
    if asked.workspace or asked.text:
        ranked = [place for place in ranked if asked.matches(place)]
        counts = Counter(place.word for place in ranked)
    else:
        counts = ranking.counts
    words = asked.words
    begin = sum(counts[word] for word in WORDS[: WORDS.index(words[0])])
    total = sum(counts[word] for word in words)
    page, last = page_within(asked.page, total, PAGE_ROWS)
    first = begin + (page - 1) * PAGE_ROWS
    shown = ranked[first : min(first + PAGE_ROWS, begin + total)]
    return NowPage(
        asked,
        [row_of(place, ranking.state(place.key), board, now) for place in shown],
        [(word, counts[word]) for word in WORDS if counts[word]],
        total,
        page,
        last,
        tools_by_health(ranked, ranking, now_ms),
        [feed_line(one) for one in board.feed() if asked.workspace in {"", one.workspace_id}][:FEED_ROWS],
        sorted({workspace for workspace, _ in ranking.tools if not workspace.startswith("user:") and workspace})[:200],
        _empty(ranking, asked, bool(total), fault),
        counted(len(ranking.tools), "tool"),
    )


def _empty(ranking: Ranking, asked: Asked, found: bool, fault: str | None) -> str:  # noqa: FBT001 - of one caller
    if found:
        return ""
    if fault is not None:
        return "fault"
    if not ranking.tools:
        return "nothing"
    return "well" if asked == Asked() else "matches"


def row_of(place: Place, state: Ranked, board: Board, now: datetime) -> Row:
    """Row of a key or session."""
    if isinstance(state, StuckSession):
        title, began, why = state.worst.session_id or "", state.worst.time, state.worst.id
        url, where = f"/sessions/{segment(title)}", state.worst.workspace_id or ""
        about = {"key": title, "workspace": where, "about": state.worst.id}
    else:
        title, began, why = state.key, getattr(state, "since", None) or state.time, board.moved_by(place.key)
        url, where = key_url(title, state.workspace_id or ""), place_of(state)
        about = {"key": title, "workspace": state.workspace_id or ""}
    said = _described(state, place.word, now)
    return Row(
        row_id(place.key),
        place.word,
        said.text,
        title,
        url,
        where,
        said.reason if len(said.reason) <= MAX_REASON else said.reason[:MAX_REASON] + " …",
        f"/decisions/{segment(why)}" if why else "",
        said.value,
        began,
        said.onward,
        orders_for(state),
        about,
    )


def row_id(key: str) -> str:
    """Id of a row's element, which depends on its key alone."""
    return f"row{blake2b(key.encode(), digest_size=6).hexdigest()}"


def key_url(key: str, workspace: str = "") -> str:
    """URL of a key's page."""
    return f"/tools/{segment(key)}" + (f"?{urlencode({'workspace': workspace})}" if workspace else "")


class _Description(NamedTuple):
    """Texts of a row: the badge, the reason, the count beside its threshold, and what comes next by itself."""

    text: str
    reason: str
    value: str = ""
    onward: str = ""


def _described(state: Ranked, word: str, now: datetime) -> _Description:
    match state:
        case TrustUpdated():
            return _trust(state, now)
        case BreakerUpdated():
            return _circuit(state, word, now)
        case QualityUpdated():
            tags = ", ".join(state.tags)
            reason = f"{counted(int(state.failures or 0), 'counted failure')}{': ' if tags else ''}{tags}"
            value = f"{state.score or 0:.2f} of {state.registered_score or 0:.2f}"
            return _Description(f"quality {word}", sentence(reason), value)
        case StuckSession():
            return _stuck(state)
    return _Description(word, "")


def _trust(state: TrustUpdated, now: datetime) -> _Description:
    reason, onward = state.reason or "", recovery_words(state, now)
    if state.recovery_pending:
        reason, onward = "has earned its trust back and waits for an operator", ""
    # What is counted leads from trust to escalation; a blocked key is past that, for the reason that it names.
    value = "" if state.state is TrustState.BLOCKED else failures_words(state)
    return _Description(plain(state.state), sentence(reason), value, onward)


def _circuit(state: BreakerUpdated, word: str, now: datetime) -> _Description:
    text = {BreakerMode.DISABLED: "disabled", BreakerMode.OBSERVE: "observed only"}.get(
        state.mode or BreakerMode.ENFORCE, f"circuit {word}"
    )
    if state.state is BreakerState.FORCED_OPEN:
        text = "circuit held open"
    return _Description(text, sentence(circuit_state_reason(state)), measured_failures(state), circuit_next(state, now))


def _stuck(state: StuckSession) -> _Description:
    worst = state.worst
    calls = repeated_calls(worst)
    reason = f"{plain(worst.pattern)}{': ' if calls else ''}{calls}"
    if worst.notify_user and worst.message:
        reason = f"{plain(worst.pattern)}: {worst.message.rstrip('.')}"
    reason += f", and {counted(state.patterns - 1, 'other pattern')}" if state.patterns > 1 else ""
    reason += f" (agent {worst.agent_id})" if worst.agent_id else ""
    return _Description(f"stuck, {worst.severity}", sentence(reason), times(worst.repetitions))


def tools_by_health(ranked: Sequence[Place], ranking: Ranking, now_ms: int) -> list[ToolRow]:
    """Tools sorted by their worst key, at most `TOOL_ROWS`."""
    worst: dict[tuple[str, str], Place] = {}
    for place in ranked:
        if place.word != "stuck" and not place.key.startswith("stuck:"):
            worst.setdefault((place.workspace, place.tool), place)
            if len(worst) == TOOL_ROWS:
                break
    return [
        _tool_row(place, ranking.state(place.key), ranking.tools[place.workspace, place.tool], now_ms)
        for place in islice(worst.values(), TOOL_ROWS)
    ]


def _tool_row(place: Place, state: Ranked, keys: int, now_ms: int) -> ToolRow:
    history = [millis(one) for one in state.failure_history] if isinstance(state, TrustUpdated) else []
    ticks = tuple(round(100 - (now_ms - at) / SPARK_MS * 100, 1) for at in history if 0 <= now_ms - at <= SPARK_MS)
    workspace = "" if isinstance(state, StuckSession) else state.workspace_id or ""
    return ToolRow(place.word, place.tool, key_url(place.tool, workspace), place.workspace, len(ticks), ticks, keys)


def feed_line(decision: DecisionBase) -> FeedLine:
    """Line of the feed for a decision."""
    session = decision.session_id or ""
    line = line_of(decision)
    if len(line.why) > MAX_REASON:
        line = line._replace(why=line.why[:MAX_REASON] + " …")
    return FeedLine(
        decision.time,
        line,
        f"/decisions/{segment(decision.id)}",
        session,
        f"/sessions/{segment(session)}" if session else "",
    )


def now_routes(site: Site) -> Sequence[Route]:
    """Route of this page."""

    async def now(request: Request) -> Response:
        """Render the page."""
        asked = Asked.of(request.query_params)
        page = now_page(site.source.board, asked, site.clock(), fault=site.source.freshness().fault)
        needed = sum(count for word, count in page.counts if word in TROUBLE)
        return site.render(request, "now.html", found=page, needed=needed)

    return [Route("/", now)]
