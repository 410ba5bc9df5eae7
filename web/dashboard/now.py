"""Now page: incidents, tools by health, and recent decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from itertools import chain, takewhile
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...errors import TrustfoldError
from ...projections.incidents import CALM, NEEDED, STATES, IncidentRecord, failure_times, word_of
from ...projections.tool.failure_counts import HOUR_MS
from ...schemas.decision_text import (
    DecisionLine,
    circuit_next,
    counted,
    failures_words,
    line_of,
    measured_failures,
    plain,
    recovery_words,
    times,
)
from ...schemas.public_state import BreakerUpdated, DecisionBase, QualityUpdated, TrustUpdated
from ...schemas.vocabulary import BreakerMode, BreakerState, TrustState
from .current_state import StateBoard
from .incident_ranking import IncidentRanking, Owner, owner_of
from .order_labels import orders_for
from .render import PageContext, page_within, positive, segment, sentence
from .sessions import LOOKED_AT, last_words

PAGE_ROWS = 50
TOOL_ROWS = 15
FEED_ROWS = 20

MAX_REASON = 300  # Maximum characters of a reason on this page; the page of the decision shows all of it


class NowQuery(NamedTuple):
    """Parsed query string; invalid values count as missing."""

    state: str = "needed"  # a state of incidents, `needed` (all of `NEEDED`) or `all`
    workspace: str = ""  # workspace to show; empty: all
    text: str = ""  # text that the keys contain; empty: any
    page: int = 1  # page of the list, from 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> NowQuery:
        """Parse a query string."""
        state = query.get("state", "needed")
        return cls(
            state if state in {*STATES, "all"} else "needed",
            query.get("workspace", ""),
            query.get("q", "").strip(),
            positive(query.get("page")),
        )

    def matches(self, one: IncidentRecord) -> bool:
        """True if an incident has the workspace and the text; its state does not count."""
        return self.names(one.workspace, one.subject, *(part.key for part in one.parts))

    def names(self, workspace: str, *names: str) -> bool:
        """True if it has the workspace, and one of the names the text."""
        held = not self.text or any(self.text.lower() in name.lower() for name in names)
        return self.workspace in {"", workspace} and held


class IncidentRow(NamedTuple):
    """Row of the list: an incident."""

    incident: IncidentRecord
    id: str  # id of its element on the page
    text: str  # text beside the shape of its state
    url: str  # page of the subject
    error: str  # words of its latest error; of a session that waits, its last call
    reason: str  # reason of the state, one sentence
    why_url: str  # page of the decision that caused the state; empty if unknown
    value: str  # count beside its threshold: `3/5`
    ticks: tuple[float, ...]  # its failures of the last hour that count for trust, as of `ToolRow`
    onward: str  # next change without intervention
    hit: str  # sessions and agents that it hit, in words
    session_url: str  # page of the session that it hit last; empty if unknown
    parts: tuple[str, ...]  # keys and circuits of an outage that are not the subject, in words
    orders: tuple[str, ...]  # names in `ORDERS`, the one that resolves it first
    about: Mapping[str, str]  # hidden fields of the form that sends the orders


class ToolRow(NamedTuple):
    """Row of the table of tools."""

    word: str  # word of its worst key; gives shape and colour
    name: str  # tool or service
    url: str  # its page
    where: str  # workspace
    ticks: tuple[float, ...]  # its failed calls of the last hour, as positions on a sparkline: 0 an hour ago, 100 now
    keys: int  # number of its keys, circuits and scores that differ from their default


class FeedLine(NamedTuple):
    """Decision of the feed: its text, its page, and the page of its session."""

    time: str
    line: DecisionLine
    url: str
    session: str
    session_url: str


class NowPage(NamedTuple):
    """Content of the page."""

    asked: NowQuery  # query string
    rows: Sequence[IncidentRow]  # this page of the list
    counts: Sequence[tuple[str, int]]  # words and their numbers of places, worst first, filtered by workspace and text
    total: int  # number of rows on all pages of the list
    # page, last: number of this page and of the last one, from 1
    page: int
    last: int
    tools: Sequence[ToolRow]  # tools, the worst first, at most `TOOL_ROWS`
    feed: Sequence[FeedLine]  # latest decisions, newest first
    workspaces: Sequence[str]  # names of all workspaces, for completion
    # reason why there are no rows: `nothing` was recorded, nothing `matches`, all is `well`, or data does not arrive
    # (`fault`); empty if there are rows
    empty: str
    measured: str  # number of tools, as text


def now_page(board: StateBoard, asked: NowQuery, now: datetime, *, fault: str | None = None) -> NowPage:
    """Content of the page for a query string; `fault` is the reason why no data arrives, None if it does."""
    now_ms = round(now.timestamp() * 1000)
    ranking, failed = board.ranking(now_ms), board.failed(now_ms)
    ranked, counts = ranking.ranked(now_ms), ranking.counts
    if asked.workspace or asked.text:
        ranked = [one for one in ranked if asked.matches(one)]
        counts = Counter(one.state for one in ranked)
        failed = {owner: times for owner, times in failed.items() if asked.names(*owner)}
    wanted, total = ranked, len(ranked) - counts["handled"]
    if asked.state == "needed":  # these stand first
        total = sum(counts[word] for word in NEEDED)
    elif asked.state != "all":
        wanted = [one for one in ranked if one.state == asked.state]
        total = len(wanted)
    page, last = page_within(asked.page, total, PAGE_ROWS)
    first = (page - 1) * PAGE_ROWS
    return NowPage(
        asked,
        [row_of(one, board, now) for one in wanted[first : min(first + PAGE_ROWS, total)]],
        [(word, counts[word]) for word in STATES if counts[word]],
        total,
        page,
        last,
        tools_by_health(ranked, failed, ranking.tools, now_ms),
        [feed_line(one) for one in board.feed() if asked.workspace in {"", one.workspace_id}][:FEED_ROWS],
        sorted({workspace for workspace, _ in ranking.tools if not workspace.startswith("user:") and workspace})[:200],
        _empty(ranking, asked, bool(total), fault),
        counted(len(ranking.tools), "tool"),
    )


def _empty(ranking: IncidentRanking, asked: NowQuery, found: bool, fault: str | None) -> str:  # noqa: FBT001 - of one caller
    if found:
        return ""
    if fault is not None:
        return "fault"
    if not ranking.tools and not +ranking.counts:
        return "nothing"
    return "well" if asked == NowQuery() else "matches"


def row_of(one: IncidentRecord, board: StateBoard, now: datetime) -> IncidentRow:
    """Row of an incident."""
    said, news, now_ms = _described(one, now), one.session, round(now.timestamp() * 1000)
    if news is not None:
        worst = max(news.patterns, key=lambda found: found.severity, default=None)
        url, why = f"/sessions/{segment(one.subject)}", worst.id if worst is not None else ""
        about = {"key": one.subject, "workspace": one.workspace, "about": why}
    else:
        where = one.parts[0].workspace_id or ""
        url, why = key_url(one.subject, where), board.moved_by(one.parts[0])
        about = {"key": one.subject, "workspace": where}
    hit = f"{counted(one.hit, 'session')} hit" if one.hit and news is None else ""
    return IncidentRow(
        one,
        row_id(one.key),
        said.text,
        url,
        _cut(one.error),
        _cut(sentence(one.reason)),
        f"/decisions/{segment(why)}" if why else "",
        said.value,
        _ticks(failure_times(one.parts), now_ms),
        said.onward,
        ", ".join([hit] * bool(hit) + [f"agent {name}" for name in one.agents]),
        f"/sessions/{segment(one.sessions[0])}" if one.sessions and news is None else "",
        tuple(f"{_KINDS[part.kind]}{part.key} {word_of(part, now_ms)[0]}" for part in one.parts if len(one.parts) > 1),
        orders_for(one),
        {**about, "row": row_id(one.key)},
    )


_KINDS = {"trust": "", "breaker": "circuit ", "quality": "score of "}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_REASON else text[:MAX_REASON] + " …"


def row_id(key: str) -> str:
    """Id of a row's element, which depends on its key alone."""
    return f"row{blake2b(key.encode(), digest_size=6).hexdigest()}"


def key_url(key: str, workspace: str = "") -> str:
    """URL of a key's page."""
    return f"/tools/{segment(key)}" + (f"?{urlencode({'workspace': workspace})}" if workspace else "")


class _RowTexts(NamedTuple):
    """Texts of a row: the badge, the count beside its threshold, and what comes next by itself."""

    text: str
    value: str = ""
    onward: str = ""


def _described(one: IncidentRecord, now: datetime) -> _RowTexts:
    if one.session is not None:
        worst = max(one.session.patterns, key=lambda found: (found.severity, found.times), default=None)
        stuck = f", {one.record()['severity']}" if one.state == "stuck" else ""
        return _RowTexts(one.state + stuck, times(worst.times) if worst is not None else "")
    match one.parts[0]:
        case TrustUpdated() as state:
            # What is counted leads from trust to escalation; a blocked key is past that, for the reason that it names.
            words = failures_words(state).removeprefix("-")
            value = f"now {words}" if words and state.state is not TrustState.BLOCKED else ""
            if value and "/" not in words and "%" not in words:  # nothing that it counts towards
                value = f"{words} failure{'' if words == '1' else 's'}"
            onward = "" if state.recovery_pending else recovery_words(state, now)
            return _RowTexts("waits for you" if state.recovery_pending else plain(state.state), value, onward)
        case BreakerUpdated() as state:
            return _circuit(state, one.state, now)
        case QualityUpdated() as state:
            value = f"{state.score or 0:.2f} of {state.registered_score or 0:.2f}"
            return _RowTexts(f"quality {one.state}", value)
    return _RowTexts(one.state)


def _circuit(state: BreakerUpdated, word: str, now: datetime) -> _RowTexts:
    text = {BreakerMode.DISABLED: "disabled", BreakerMode.OBSERVE: "observed only"}.get(
        state.mode or BreakerMode.ENFORCE, f"circuit {word}"
    )
    if state.state is BreakerState.FORCED_OPEN:
        text = "circuit held open"
    return _RowTexts(text, measured_failures(state), circuit_next(state, now))


def _ticks(times_ms: Iterable[int], now_ms: int) -> tuple[float, ...]:
    """Positions of the failures of the last hour: 0 an hour ago, 100 now."""
    ages = sorted((now_ms - at for at in times_ms), reverse=True)
    return tuple(round(100 - age / HOUR_MS * 100, 1) for age in ages if 0 <= age <= HOUR_MS)


def tools_by_health(
    ranked: Sequence[IncidentRecord], failed: Mapping[Owner, Sequence[int]], tools: Mapping[Owner, int], now_ms: int
) -> list[ToolRow]:
    """Tools sorted by their worst incident, then by their failures, at most `TOOL_ROWS`.

    `failed` are times of failures in the last hour, milliseconds since 1970; `tools` counts the states of each tool.
    """
    trouble = takewhile(lambda one: one.state not in CALM, ranked)
    words: dict[Owner, str] = {}
    for owner, word in chain(
        ((owner_of(part), word_of(part, now_ms)[0]) for one in trouble for part in one.parts),
        ((owner, "ok") for owner in sorted(failed, key=lambda owner: -len(failed[owner]))),
        ((owner_of(part), word_of(part, now_ms)[0]) for one in ranked for part in one.parts),
    ):
        if owner not in words and len(words) == TOOL_ROWS:
            break
        words.setdefault(owner, word)
    urls = {owner: key_url(owner[1], "" if owner[0].startswith("user:") else owner[0]) for owner in words}
    return [
        ToolRow(word, owner[1], urls[owner], owner[0], _ticks(failed.get(owner, ()), now_ms), tools[owner])
        for owner, word in words.items()
    ]


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


def now_routes(site: PageContext) -> Sequence[Route]:
    """Route of this page."""

    async def now(request: Request) -> Response:
        """Render the page."""
        asked = NowQuery.of(request.query_params)
        with suppress(TrustfoldError):
            await site.source.renew()
        page = now_page(site.source.board, asked, site.clock(), fault=site.source.freshness().fault)
        rows = [
            row._replace(error=last_words(await site.source.events(session=row.incident.subject, limit=LOOKED_AT)))
            if row.incident.state == "waiting" and row.incident.session is not None else row
            for row in page.rows
        ]  # fmt: skip
        needed = sum(count for word, count in page.counts if word in NEEDED)
        return site.render(request, "now.html", found=page._replace(rows=rows), needed=needed)

    return [Route("/", now)]
