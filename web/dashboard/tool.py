"""Tools page, and the page of one tool, service or key."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...errors import TrustfoldError
from ...history.charts import objects
from ...history.filters import EVERYTHING
from ...history.findings import rated, ratio
from ...history.page import figure, table
from ...history.plots import FEW, FailureRate, TimeAxis, rates, share_text
from ...history.reports import CatalogueQuestion, PlotColumns, QuestionAnswer
from ...history.summary import PeriodShare, SummaryNumber
from ...projections.calls.keys import tool_of_key
from ...projections.incidents import NEEDED, STATES, of_family, word_of
from ...projections.tool.models import Z_95, wilson_bounds
from ...schemas.decision_text import counted, plain
from ...schemas.decisions import BreakerChanged, ModelSwitchSuggested, ProbeAnswerBase, TrustFields
from ...schemas.public_state import DecisionBase, PublicState, TrustUpdated
from .current_state import StateBoard
from .history import MOST_ROWS, copied_sql, downloaded, shown_figure, unanswered, window_of
from .history_answers import HistoryArchive, QuestionRequest
from .history_filters import NAMES, PRESETS, PageFilters, bucket_of
from .incident_ranking import owner_of
from .now import FeedLine, IncidentRow, feed_line, row_of
from .render import PageContext, link, page_within, positive, segment

PAGE_ROWS = 50
MOST_TOOLS = 2_000
MOST_SIGNATURES = 10_000
MOST_STEPS = 1000
MOST_SPANS = 2000
SHOWN = 15  # Rows of a table of this page; its question has them all
ESCALATING = 0.3  # Share of the failures of a signature in the last tenth of the time above which it escalates

_FAILED = "verdict = 'failure' AND expected IS NOT TRUE"
_COUNTS = f"""count(*) AS calls, count(*) FILTER ({_FAILED}) AS failures,
       count(*) FILTER (verdict <> 'neutral') AS judged"""
_RATE = """failures / nullif(judged, 0) AS rate,
       wilson_low(failures, judged) AS rate_low, wilson_high(failures, judged) AS rate_high"""
_JUDGED = f"{_COUNTS}, {_RATE}"
_RATED = ("calls", "failures", "judged", "rate", "rate_low", "rate_high")
_QUANTILES = (
    "quantile_cont(duration_ms, [0.5, 0.95])[1] AS p50_ms, quantile_cont(duration_ms, [0.5, 0.95])[2] AS p95_ms"
)

_OF_LIST = f"""{_JUDGED}, {_QUANTILES}, count(DISTINCT session_id) AS sessions, max(time) AS last_call,
       count(*) FILTER ({_FAILED} AND time > until - INTERVAL 1 HOUR) AS last_hour,
       count(*) FILTER ({_FAILED} AND time > until - INTERVAL 2 HOUR AND time <= until - INTERVAL 1 HOUR) AS hour_before
FROM tool_calls, recorded_until"""

_TOOLS = CatalogueQuestion(
    "every-tool",
    "How does every tool do?",
    f"SELECT tool_name AS tool, {_OF_LIST} GROUP BY tool_name UNION ALL "
    f"SELECT 'service:' || service, {_OF_LIST} WHERE service IS NOT NULL GROUP BY service "
    "ORDER BY calls DESC, tool LIMIT $limit",
)


class ToolLine(NamedTuple):
    """A tool or service of the list."""

    word: str  # word of its worst key now, of `incidents.STATES`; empty if nothing is known
    name: str  # tool, or `service:` and its name
    url: str  # its page
    keys: int  # number of its keys that differ from their default now
    row: Mapping[str, Any]  # numbers of the history, by columns of the query; empty if nothing is recorded
    rate: str  # failure rate with its counts and its 95 % interval, as text


def tool_lines(
    answer: QuestionAnswer | None, board: StateBoard, narrowing: PageFilters, sort: str, text: str, now: datetime
) -> list[ToolLine]:
    """Tools and services with their worst state now and their numbers, also those that only have a state."""
    now_ms = round(now.timestamp() * 1000)
    ranking = board.ranking(now_ms)
    worst: dict[str, str] = {}
    keys: dict[str, int] = {}
    wanted = narrowing.named["workspace"]
    for one in ranking.ranked(now_ms):
        if not wanted or one.workspace in wanted:
            for part in one.parts:
                _, tool = owner_of(part)
                worst.setdefault(tool, word_of(part, now_ms)[0])
                keys[tool] = keys.get(tool, 0) + 1
    known = {row["tool"]: row for row in objects(answer)} if answer else {}
    tools = narrowing.named["tool"]
    every = [
        ToolLine(
            worst.get(name, "ok" if name in known else ""),
            name,
            link(f"/tools/{segment(name)}", narrowing.carried("tool")),
            keys.get(name, 0),
            known.get(name, {}),
            rate_words(known[name]) if name in known else "",
        )
        for name in {**known, **worst}
        if text.lower() in name.lower() and (not tools or name in tools)
    ]
    return sorted(every, key=lambda one: (*_ORDER[sort](one), one.name))


_ORDER: dict[str, Any] = {
    "worst": lambda one: (STATES.index(one.word) if one.word in NEEDED else 99, -(one.row.get("rate_low") or 0)),
    "calls": lambda one: (-(one.row.get("calls") or 0),),
    "rate": lambda one: (-(one.row.get("rate") or 0), -(one.row.get("judged") or 0)),
    "p95": lambda one: (-(one.row.get("p95_ms") or 0),),
}


def rate_words(row: Mapping[str, Any]) -> str:
    """Failure rate with its counts and its 95 % interval; only the counts if there are fewer than `FEW` calls."""
    failures, judged = row["failures"], row["judged"]
    return rated(failures, judged) if judged >= FEW else f"{failures}/{judged}: too few"


class PageSubject(NamedTuple):
    """Subject of a page: a tool, a service or a trust key."""

    key: str  # tool, `service:NAME`, or trust key
    name: str  # its name in the history
    calls: str  # SQL condition that selects its calls; `$name` is the name
    states: str  # SQL condition that selects its states

    @classmethod
    def of(cls, key: str) -> PageSubject:
        """Subject of a key; `tool:bash` is the tool `bash`."""
        if key.startswith("service:"):
            own = "(subject = 'service:' || $name OR service_of(subject) = $name)"
            return cls(key, key.removeprefix("service:"), "service = $name", own)
        if "|" in key:
            return cls(key, key, "failure_key = $name", "(subject = $name OR subject = 'tool:' || tool_of($name))")
        name = key.removeprefix("tool:")
        return cls(name, name, "tool_name = $name", "tool_of(subject) = $name")

    def numbers(self) -> CatalogueQuestion:
        """Question of its four numbers."""
        return CatalogueQuestion(
            "numbers",
            "How does it do?",
            f"SELECT {_JUDGED}, {_QUANTILES}, count(DISTINCT session_id) AS sessions, min(time) AS first_call, "  # noqa: S608 - no values
            f"max(time) AS last_call FROM tool_calls WHERE {self.calls} LIMIT $limit",
        )

    def over_time(self) -> CatalogueQuestion:
        """Question of its failures and latency over time."""
        return CatalogueQuestion(
            "over-time",
            "How often did it fail, and how long did it take?",
            f"SELECT time_bucket($step_ms * INTERVAL 1 MILLISECOND, time) AS began, {_JUDGED}, {_QUANTILES} "  # noqa: S608 - no values
            f"FROM tool_calls WHERE {self.calls} GROUP BY 1 ORDER BY 1 LIMIT $limit",
        )

    def failures(self) -> CatalogueQuestion:
        """Question of its failures by signature."""
        return CatalogueQuestion(
            "failures-of",
            "What are its failures?",
            "SELECT signature, mode(severity) AS severity, count(*) AS failures, count(DISTINCT session_id) AS sessions, "  # noqa: S608 - no values
            "min(time) AS first_seen, max(time) AS last_seen, arg_max(session_id, time) AS session_id, arg_max(id, time) AS event, "
            "any_value(error_type) AS error_type, any_value(http_status) AS http_status, "
            "histogram(time_bucket($step_ms * INTERVAL 1 MILLISECOND, time)) AS trend "
            f"FROM failures WHERE expected IS NOT TRUE AND {self.calls} GROUP BY signature ORDER BY failures DESC, signature LIMIT $limit",
        )

    def earlier(self) -> CatalogueQuestion:
        """Query of all signatures of its failures; filters set the end of the time."""
        return CatalogueQuestion(
            "failures-before",
            "Which failures were there before?",
            "SELECT DISTINCT signature FROM failures WHERE expected IS NOT TRUE "  # noqa: S608 - no values
            f"AND {self.calls} ORDER BY signature LIMIT $limit",
        )

    def spans(self) -> CatalogueQuestion:
        """Question of the states of its keys and circuits."""
        return CatalogueQuestion(
            "states",
            "In which state was it?",
            "SELECT subject, workspace, state, began, ended, machine FROM state_spans "  # noqa: S608 - no values
            f"WHERE {self.states} ORDER BY worst, changes DESC, subject, workspace, began, ended LIMIT $limit",
            PlotColumns("timeline", ("subject", "workspace"), "state", began="began", ended="ended"),
        )

    def by(self, column: str, title: str) -> CatalogueQuestion:
        """Question of its calls grouped by a column."""
        return CatalogueQuestion(
            f"by-{column}",
            title,
            f"SELECT coalesce({column}, 'unknown') AS {column}, {_JUDGED}, max(time) AS last_call FROM tool_calls "  # noqa: S608 - no values
            f"WHERE {self.calls} GROUP BY 1 ORDER BY rate_low DESC NULLS LAST, failures DESC, calls DESC, 1 LIMIT $limit",
            PlotColumns("bars", (column,), "rate", "share", "rate_low", "rate_high", "failures", "judged"),
        )

    def every_by(self) -> tuple[CatalogueQuestion, ...]:
        """Questions of its calls by model, agent and session."""
        return (
            self.by("model", "Which models does it fail?"),
            self.by("agent_id", "Which agents does it fail?"),
            self.by("session_id", "Which sessions does it fail?"),
        )

    def grouped(self) -> CatalogueQuestion:
        """Question of `numbers`, `over_time` and the first `$shown` rows of `every_by`, at a third of their cost."""
        return CatalogueQuestion(
            "grouped",
            "How does it do, over time, by model, agent and session?",
            f"""WITH own AS MATERIALIZED (
                SELECT time_bucket($step_ms * INTERVAL 1 MILLISECOND, time) AS began, coalesce(model, 'unknown') AS model,
                       coalesce(agent_id, 'unknown') AS agent_id, session_id, time, verdict, expected, duration_ms
                FROM tool_calls WHERE {self.calls}
            ), counted AS MATERIALIZED (
                SELECT model, agent_id, session_id, {_COUNTS}, max(time) AS last_call FROM own GROUP BY ALL
            ), parts AS (
                SELECT CASE GROUPING(began) WHEN 0 THEN 'over-time' ELSE 'numbers' END AS part, began, NULL AS name, {_COUNTS},
                       {_QUANTILES}, min(time) AS first_call, max(time) AS last_call FROM own GROUP BY GROUPING SETS ((), (began))
                UNION ALL
                SELECT CASE WHEN GROUPING(model) = 0 THEN 'by-model' WHEN GROUPING(agent_id) = 0 THEN 'by-agent_id' ELSE 'by-session_id' END,
                       NULL, coalesce(model, agent_id, session_id), sum(calls)::BIGINT, sum(failures)::BIGINT, sum(judged)::BIGINT,
                       NULL, NULL, NULL, max(last_call) FROM counted GROUP BY GROUPING SETS ((model), (agent_id), (session_id))
            )
            SELECT *, {_RATE}, count(*) OVER (PARTITION BY part) AS rows FROM parts
            QUALIFY part = 'over-time' OR row_number() OVER (PARTITION BY part ORDER BY rate_low DESC NULLS LAST, failures DESC, calls DESC, name) <= $shown
            ORDER BY part, began, rate_low DESC NULLS LAST, failures DESC, calls DESC, name LIMIT $limit""",  # noqa: S608 - no values
        )

    def taken_apart(self, answer: QuestionAnswer) -> tuple[dict[str, Any], QuestionAnswer, list[QuestionAnswer]]:
        """Of an answer to `grouped`: the numbers, and the answers to `over_time` and `every_by`."""
        parts: dict[str, list[Mapping[str, Any]]] = {}
        for row in objects(answer):
            parts.setdefault(row["part"], []).append(row)

        def part(question: CatalogueQuestion, columns: Sequence[str], name: str) -> QuestionAnswer:
            rows = parts.get(question.name, [])
            left_out = rows[0]["rows"] - len(rows) if rows else 0
            named = [name if column == "name" else column for column in columns]
            return QuestionAnswer(question, named, [tuple(row[column] for column in columns) for row in rows], left_out)

        (numbers,) = parts["numbers"]
        sessions = parts["by-session_id"][0]["rows"] if "by-session_id" in parts else 0
        over = part(self.over_time(), ("began", *_RATED, "p50_ms", "p95_ms"), "")
        by = [part(one, ("name", *_RATED, "last_call"), one.name.removeprefix("by-")) for one in self.every_by()]
        return {**numbers, "sessions": sessions}, over, by

    def questions(self) -> tuple[CatalogueQuestion, ...]:
        """Questions of the pictures and tables of its page, in their order."""
        return (self.over_time(), self.failures(), self.spans(), *self.every_by())


def signatures(
    answer: QuestionAnswer, window: TimeAxis | None, step: timedelta, before: Collection[str | None] = ()
) -> list[dict[str, Any]]:
    """Rows of `PageSubject.failures` with their state, the points of their trend and the page of the last failure.

    `before` are the signatures seen before the shown time.
    """
    found = []
    for row in objects(answer):
        counts: Mapping[datetime, int] = row["trend"] or {}
        most = max(counts.values(), default=0)
        trend: tuple[tuple[float, float], ...] = ()
        if window is not None and most:
            steps = int((window.end - window.begin) / step) + 1
            first = min(counts)
            first -= int((first - window.begin) / step) * step
            values = [counts.get(first + number * step, 0) for number in range(steps + 1)]
            trend = tuple((100 * place / steps, 23 - 21 * value / most) for place, value in enumerate(values))
        kind = " ".join(str(one) for one in (row["error_type"], row["http_status"]) if one)
        url = f"/sessions/{segment(row['session_id'])}#e-{segment(row['event'] or '')}"
        state = _state(row, window, before)
        found.append({**row, "kind": kind, "state": state, "trend": trend, "most": most, "url": url})
    return found


def _state(row: Mapping[str, Any], window: TimeAxis | None, before: Collection[str | None]) -> str:
    """State of a signature.

    `new` (first seen within the last tenth of the shown time, and never before), `back` (likewise, but also seen before
    the shown time), `escalating` (significantly more than three times as frequent in the last tenth), or empty.
    """
    if window is None:
        return ""
    late = window.end - (window.end - window.begin) / 10
    if row["first_seen"] > late:
        return "back" if row["signature"] in before else "new"
    lately = sum(count for at, count in (row["trend"] or {}).items() if at >= late)
    surely, _ = wilson_bounds(lately, row["failures"], Z_95)
    return "escalating" if surely > ESCALATING and lately >= FEW else ""


def four_numbers(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[SummaryNumber]:
    """Calls, failure rate, failures, latency."""
    share = PeriodShare(now["failures"], now["judged"], *((before["failures"], before["judged"]) if before else (0, 0)))
    was = (
        [f"before: {before['calls']:,}", f"before: {ratio(before['failures'], before['judged'])}"]
        if before
        else ["", ""]
    )
    if before and share.change is None:
        was[1] += "; too few to compare"
    latency = [
        (f"{row['p50_ms']:,.0f} ms" if row["p50_ms"] is not None else "–") if row else "" for row in (now, before)
    ]
    tail = f"half of the calls; 95 % within {now['p95_ms']:,.0f} ms" if now["p95_ms"] is not None else "not measured"
    return [
        SummaryNumber("calls", f"{now['calls']:,}", f"in {counted(now['sessions'], 'session')}", was[0]),
        SummaryNumber("failure rate", share_text(now["rate"]) if now["rate"] is not None else "–", rate_words(now), was[1], share.verdict()),
        SummaryNumber("failures", f"{now['failures']:,}", "refused, cancelled and expected ones are none", f"before: {before['failures']:,}" if before else ""),
        SummaryNumber("latency", latency[0], tail, f"before: {latency[1]}" if before else ""),
    ]  # fmt: skip


def states_of(board: StateBoard, key: str, now: datetime, where: Sequence[str] = ()) -> list[IncidentRow]:
    """Rows of a key's current state, in all or the given workspaces; for a tool those of all its keys, the worst first."""
    now_ms = round(now.timestamp() * 1000)
    own = [
        one
        for state in _own_states(board, key, where)
        for one in of_family([state], now_ms)
        if one.state != "ok" or state.kind != "quality"  # a score that is whole says nothing of a tool that fails
    ]
    rows = [row_of(one, board, now) for one in sorted(own)[:PAGE_ROWS]]
    # A row may be a part of an incident, and it is the incident that somebody acknowledges.
    return [
        row._replace(orders=tuple(one for one in row.orders if one not in {"acknowledge", "withdraw"})) for row in rows
    ]


def _own_states(board: StateBoard, key: str, where: Sequence[str]) -> list[PublicState]:
    """States of a key, of a tool those of all its keys."""
    return [
        state
        for state in board.states.values()
        if (state.key == key or ("|" not in key and owner_of(state)[1] == key))
        and (not where or state.scope == "user" or state.workspace_id in where)
    ]


def targets_words(board: StateBoard, key: str, where: Sequence[str] = ()) -> str:
    """Sentence on the untrusted targets of a tool that is trusted as a whole; empty if it is not, or all targets are."""
    lost = [one for one in _own_states(board, key, where) if isinstance(one, TrustUpdated) and one.state != "trusted"]
    if "|" in key or not lost or not all("|" in one.key for one in lost):
        return ""
    counts = sorted(Counter(plain(one.state) for one in lost).items())
    found = ", ".join(f"{count:,} {'is' if count == 1 else 'are'} {word}" for word, count in counts)
    return f"The tool as a whole is trusted; of its targets {found}."


def key_of(decision: DecisionBase) -> str:
    """Key, circuit or failure key that a decision is about; empty if it is about a session."""
    match decision:
        case TrustFields():
            return decision.key
        case BreakerChanged() | ProbeAnswerBase():
            return decision.breaker_key
        case ModelSwitchSuggested():
            return decision.failure_key
    return ""


def decided_of(board: StateBoard, key: str, where: Sequence[str] = ()) -> list[FeedLine]:
    """Latest decisions about a key, or about any key of a tool, that are still in memory; `where` as of `states_of`."""
    found = []
    for one in board.feed(200):
        if where and one.workspace_id not in where:
            continue
        about = key_of(one)
        if about and (about == key or ("|" not in key and tool_of_key(about.removeprefix("tool:")) == key)):
            found.append(feed_line(one))
    return found[:SHOWN]


def tools_asked(narrowing: PageFilters) -> QuestionRequest:
    """Question of the list of tools."""
    return QuestionRequest(narrowing.filters, _TOOLS, MOST_TOOLS)


def tool_routes(site: PageContext) -> Sequence[Route]:
    """Routes of these pages."""
    archive = site.archive

    async def tools(request: Request) -> Response:
        """Render the list."""
        now, query = site.clock(), request.query_params
        narrowing, text = PageFilters.of(query, now), query.get("q", "").strip()
        sort = query.get("sort", "") if query.get("sort") in _ORDER else "worst"
        answer, why = None, ""
        try:
            if wanted := query.get("download"):
                return await downloaded(archive, wanted, [_TOOLS], narrowing.filters)
            asked = tools_asked(narrowing)
            answer = (await archive.ask(asked.question, asked.filters, asked.limit)).answer
        except TrustfoldError as error:
            why = str(error)
        lines = tool_lines(answer, site.source.board, narrowing, sort, text, now)
        page, last = page_within(positive(query.get("page")), len(lines), PAGE_ROWS)
        return site.render(
            request, "tools.html", narrowing=narrowing, presets=PRESETS, names=NAMES, lines=lines[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
            total=len(lines), page=page, last=last, sort=sort, sorts=_ORDER, text=text, why=why,
            sql=copied_sql(_TOOLS, MOST_ROWS), cut=answer.left_out if answer else 0,
        )  # fmt: skip

    async def tool(request: Request) -> Response:
        """Render the page of a tool, service or key."""
        now = site.clock()
        narrowing = PageFilters.of(request.query_params, now)
        subject = PageSubject.of(request.path_params["key"])
        board, where = site.source.board, narrowing.filters.workspaces
        states, decided = states_of(board, subject.key, now, where), decided_of(board, subject.key, where)
        known: dict[str, Any] = {"subject": subject, "states": states, "decided": decided}
        known["targets"] = targets_words(board, subject.key, where)
        try:
            if wanted := request.query_params.get("download"):
                return await _downloaded(archive, subject, narrowing, wanted)
            parts = await _parts(archive, subject, narrowing)
            if not parts["numbers"]["calls"] and not states and not await _ever(archive, subject):
                return _unknown(site, request, subject.key)
        except TrustfoldError as error:
            if not states and not decided and not getattr(error, "recorded", True):
                return _unknown(site, request, subject.key)
            return unanswered(site, request, subject.key, narrowing, error, **known)
        return site.render(
            request, "tool.html", narrowing=narrowing, presets=PRESETS, names=NAMES, **known, **parts,
        )  # fmt: skip

    return [Route("/tools", tools), Route("/tools/{key:path}", tool)]


async def _numbers_before(
    archive: HistoryArchive, subject: PageSubject, narrowing: PageFilters
) -> Mapping[str, Any] | None:
    """Numbers of the period before; None where there is none with calls."""
    if narrowing.before is None:
        return None
    (before,) = objects((await archive.ask(subject.numbers(), narrowing.before, name=subject.name)).answer)
    return before if before["calls"] else None


async def _downloaded(archive: HistoryArchive, subject: PageSubject, narrowing: PageFilters, wanted: str) -> Response:
    """Rows of a picture or a table of the page."""
    step = _step(await window_of(archive, narrowing), narrowing)
    questions = [one for one in subject.questions() if one.name == wanted.rpartition(".")[0]] or subject.questions()
    used = _used(questions[0], subject.name, step)
    return await downloaded(archive, wanted, questions, narrowing.filters, **used)


async def _ever(archive: HistoryArchive, subject: PageSubject) -> bool:
    """Whether the history holds any call or state of the subject."""
    asked = [
        archive.ask(question, EVERYTHING, 1, name=subject.name) for question in (subject.numbers(), subject.spans())
    ]
    numbers, spans = await asyncio.gather(*asked)
    return bool(numbers.answer.rows[0][0] or spans.answer.rows)


async def _before(archive: HistoryArchive, subject: PageSubject, narrowing: PageFilters) -> frozenset[str | None]:
    """Signatures of its failures before the shown time."""
    begin = narrowing.filters.since
    if begin is None:
        return frozenset()
    earlier = narrowing.filters._replace(since=None, until=begin)
    found = await archive.ask(subject.earlier(), earlier, MOST_SIGNATURES, name=subject.name)
    return frozenset(row[0] for row in found.answer.rows)


async def _parts(archive: HistoryArchive, subject: PageSubject, narrowing: PageFilters) -> dict[str, Any]:
    """Pictures and tables of the page."""
    window = await window_of(archive, narrowing)
    step = _step(window, narrowing)
    filters, name, failures = narrowing.filters, subject.name, subject.failures()
    grouped, failed, spans, was, before = await asyncio.gather(
        archive.ask(subject.grouped(), filters, MOST_STEPS, **_used(subject.grouped(), name, step), shown=SHOWN),
        archive.ask(failures, filters, SHOWN, **_used(failures, name, step)),
        archive.ask(subject.spans(), filters, MOST_SPANS, name=name),
        _numbers_before(archive, subject, narrowing),
        _before(archive, subject, narrowing),
    )
    numbers, over, by = subject.taken_apart(grouped.answer)
    points = [
        FailureRate(row["began"], row["failures"], row["judged"], row["rate_low"], row["rate_high"])
        for row in objects(over)
    ]
    worst = max(
        (point for point in points if point.calls), key=lambda point: (point.low or 0, point.failures), default=None
    )
    caption = (
        f"Fails most, as far as is sure, in the {_span(step)} from {worst.at:%Y-%m-%d %H:%M} UTC: {ratio(worst.failures, worst.calls)}."
        if worst and worst.failures
        else "No call failed."
    )
    columns = ["began", "calls", "failures", "rate", "rate_low", "rate_high", "p50_ms", "p95_ms"]
    rows = [[row[column] for column in columns] for row in objects(over)]
    return {
        "numbers": numbers,
        "four": four_numbers(numbers, was),
        "rate_figure": Markup(  # noqa: S704 - all parts are escaped
            figure(rates(points, step, window), "Failure rate over time", caption, table(columns, rows, title="Failures and latency over time"))
        ),
        "state_figure": shown_figure(spans.answer, narrowing, window),
        "signatures": signatures(failed.answer, window, step, before),
        "signatures_left": failed.answer.left_out,
        "step": _span(step),
        "by": [
            (one.question, shown_figure(one, narrowing))
            for one in by
            if one.question.name != "by-agent_id" or any(row[0] != "unknown" for row in one.rows)
        ],
        "sql": {one.name: copied_sql(one, MOST_ROWS, **_used(one, name, step)) for one in subject.questions()},
        "found_at": grouped.at,
    }  # fmt: skip


def _step(window: TimeAxis | None, narrowing: PageFilters) -> timedelta:
    """Duration of one point of the page's plots."""
    return bucket_of(window.end - window.begin if window else narrowing.length)


def _used(question: CatalogueQuestion, name: str, step: timedelta) -> dict[str, Any]:
    """Values of a question's parameters."""
    step_ms = int(step / timedelta(milliseconds=1))
    return {"name": name} | ({"step_ms": step_ms} if "$step_ms" in question.sql else {})


def _span(step: timedelta) -> str:
    hours, minutes = step // timedelta(hours=1), step // timedelta(minutes=1)
    return f"{step.days} d" if step.days else f"{hours} h" if hours else f"{minutes} min"


def _unknown(site: PageContext, request: Request, key: str) -> Response:
    return site.render(
        request, "message.html", status=404, title="Nothing is known of this key",
        text=f"No call, state or decision of {key} is kept here. Names are case-sensitive.", back="/tools",
    )  # fmt: skip
