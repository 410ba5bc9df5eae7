"""History pages: every question of the catalogue with filters, as plot, table, CSV, JSON and SQL."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...errors import TrustfoldError
from ...history.charts import picture
from ...history.filters import HistoryFilters
from ...history.findings import finding
from ...history.page import figure, table
from ...history.plots import TimeAxis
from ...history.queries import plain
from ...history.reports import BY_NAME, CatalogueQuestion, PlotColumns, QuestionAnswer, against_before, filters_for
from .history_answers import HistoryArchive, QuestionUnanswered, TimedAnswer
from .history_filters import NAMES, PRESETS, PageFilters
from .render import PageContext, link, positive, segment

ROWS = 50
FEW = 8  # Rows of an answer on the first page of the history

MOST_ROWS = 10_000
REACHED = 50_000  # Maximum rows of an answer over all pages; `trustfold sql` has no limit

# Questions by topic
GROUPS = (
    ("Asked first", ("now", "look-first", "new", "worse", "compare")),
    (
        "Tools and services",
        ("tools", "failures", "signatures", "reclassified", "states", "breakers", "recovery", "retries"),
    ),
    ("Models", ("models", "patterns", "loop-costs", "loops", "nudges", "sessions")),
    ("People", ("asks", "false-alarms", "reasons")),
    ("What is recorded", ("overview", "by-day", "recent", "dead-letters")),
)

COMPARE = CatalogueQuestion(
    "compare",
    "What changed since the time before?",
    "SELECT kind, name, verdict, rate, failures, calls, rate_before, failures_before, calls_before, change, "
    "count(*) FILTER (verdict = 'worse') OVER () AS all_worse, count(*) FILTER (verdict = 'better') OVER () AS all_better, "
    "count(*) FILTER (verdict = 'new') OVER () AS all_new, count(*) FILTER (verdict = 'gone') OVER () AS all_gone "
    "FROM compared_rates(INTERVAL 7 DAY) LIMIT $limit",
    reads="Failure rates of all tools and models beside those of as long before; `worse` and `better` only where the 95 % interval "
    "of the change leaves out 0 and both have 10 calls.",
)
BY_DAY = CatalogueQuestion(
    "by-day",
    "How many calls were there, and how many failed?",
    "SELECT time::DATE AS day, CASE WHEN verdict = 'failure' AND expected IS NOT TRUE THEN severity ELSE 'not failed' END AS severity, "
    "count(*)::BIGINT AS calls FROM tool_calls GROUP BY ALL ORDER BY ALL LIMIT $limit",
    PlotColumns("columns", ("severity",), "calls", "calls", began="day"),
    reads="Days in UTC. The first and the last may be only partly within the chosen time.",
)
FIRST = ("by-day", "compare", "new", "loops", "asks")  # Questions that the first page of the history answers
ASKED = {**BY_NAME, "compare": COMPARE, "by-day": BY_DAY}  # Questions that have a page, by name

_WINDOW = CatalogueQuestion(
    "window",
    "Which time is shown?",
    "SELECT coalesce(since, (SELECT min(time) FROM recorded_events)), until FROM recorded_until, recorded_since LIMIT $limit",
)


class QuestionQuery(NamedTuple):
    """Parsed query string of a question."""

    narrowing: PageFilters  # time range and filters
    page: int  # page of the table, from 1
    rows: int  # rows per page

    @classmethod
    def of(cls, query: QueryParams, now: datetime) -> QuestionQuery:
        """Parse a query string; invalid numbers count as missing."""
        rows = min(positive(query.get("rows"), ROWS), MOST_ROWS)
        return cls(PageFilters.of(query, now), min(positive(query.get("page")), REACHED // rows), rows)


class AnswerPage(NamedTuple):
    """One page of an answer."""

    answer: QuestionAnswer  # answer with only the rows of this page
    picture: QuestionAnswer  # rows of the plot: those of all pages up to this one
    total: int  # number of rows on all pages
    last: int  # number of the last page
    at: datetime  # time of the answer


def meant(name: str, narrowing: PageFilters) -> tuple[CatalogueQuestion, HistoryFilters]:
    """The question of a name and its filters: what is new or got worse is so against as long before, which it must see."""
    if narrowing.before is None or name not in {"worse", "new", "compare"}:
        return ASKED[name], filters_for(ASKED[name], narrowing.filters)
    return against_before(ASKED[name], narrowing.length), narrowing.filters._replace(since=narrowing.before.since)


def question_asked(name: str, asked: QuestionQuery) -> tuple[CatalogueQuestion, HistoryFilters, int]:
    """Question, filters and maximum number of rows of a question's page."""
    question, filters = meant(name, asked.narrowing)
    return question, filters, asked.page * asked.rows if paged(question) else 400


def shown(found: TimedAnswer, asked: QuestionQuery) -> AnswerPage:
    """Requested page of an answer; empty if beyond the last."""
    answer, total = found.answer, len(found.answer.rows) + found.answer.left_out
    whole = not paged(answer.question)
    start = 0 if whole else (asked.page - 1) * asked.rows
    rows = answer.rows if whole else answer.rows[start : start + asked.rows]
    last = 1 if whole else min(max(1, -(-total // asked.rows)), REACHED // asked.rows)
    return AnswerPage(answer._replace(rows=rows, left_out=0), answer, total, last, found.at)


def paged(question: CatalogueQuestion) -> bool:
    """True if an answer has pages; answers by whole days have none."""
    return question.plot is None or question.plot.kind != "columns"


def linked(narrowing: PageFilters) -> Callable[[str, dict[str, Any]], str]:
    """Link function for values of a table: to the page of their tool, key, model or session, with the same filters."""

    def to(column: str, row: dict[str, Any]) -> str:
        value = row[column]
        if not isinstance(value, str) or not value or value == "unknown":
            return ""
        if column == "session_id":
            return link(f"/sessions/{segment(value)}")
        if column == "model" or (column == "name" and row.get("kind") == "model"):
            return link("/models", narrowing.carried("model"), model=value)
        key = column in {"tool", "tool_name", "circuit"}
        key |= column == "name" and row.get("kind") in {"tool", "trust lost", "circuit opened"}
        key |= column == "subject" and row.get("state") != "stuck" and row.get("topic") != "nudges"
        return link(f"/tools/{segment(value)}", narrowing.carried("tool", "session")) if key else ""

    return to


def csv_of(answer: QuestionAnswer) -> bytes:
    """Rows as CSV with a header, one line for each row of the table; a text that a spreadsheet takes for a formula is quoted."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(answer.columns)
    for row in answer.rows:
        writer.writerow([_cell(value) for value in row])
    return out.getvalue().encode()


def _cell(value: Any) -> Any:
    found = plain(value)
    if isinstance(found, list):
        found = "; ".join(map(str, found))
    return f"'{found}" if isinstance(found, str) and found[:1] in {"=", "+", "-", "@", "\t", "\r"} else found


def copied_sql(question: CatalogueQuestion, rows: int, **arguments: Any) -> str:
    """Query of a question in the form that `trustfold sql` accepts: its parameters replaced by their values."""
    values = {
        name: "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
        for name, value in {"limit": rows, **arguments}.items()
    }
    return re.sub(r"\$(\w+)", lambda found: values.get(found[1], found[0]), question.sql)


async def downloaded(
    archive: HistoryArchive,
    wanted: str,
    questions: Sequence[CatalogueQuestion],
    filters: HistoryFilters,
    **arguments: Any,
) -> Response:
    """All rows of one of a page's questions as a file, at most `MOST_ROWS`.

    Args:
        archive: the history.
        wanted: name of the question and format: `by-model.csv`.
        questions: questions of the page.
        filters: filters of the page.
        arguments: values of further parameters of the queries.

    Raises:
        HTTPException: 404, the page has no such question.
        TrustfoldError: as `HistoryArchive.ask`.
    """
    name, _, kind = wanted.rpartition(".")
    found = next((one for one in questions if one.name == name), None)
    if found is None or kind not in {"csv", "json"}:
        known = ", ".join(one.name for one in questions)
        raise HTTPException(404, f"This page has no rows {wanted!r}. There are: {known}, each as .csv or .json.")
    return _file(name, kind, (await archive.ask(found, filters, MOST_ROWS, **arguments)).answer)


def history_routes(site: PageContext) -> Sequence[Route]:
    """Routes of these pages."""
    archive = site.archive

    async def history(request: Request) -> Response:
        """Page with the questions and an overview of the recording."""
        narrowing = PageFilters.of(request.query_params, site.clock())
        asked = QuestionQuery(narrowing, 1, ROWS)
        try:
            overview = await archive.ask(BY_NAME["overview"], narrowing.filters)
            found = [(await archive.ask(*question_asked(name, asked))).answer for name in FIRST]
        except TrustfoldError as error:
            return unanswered(site, request, "History", narrowing, error)

        groups = [(title, [ASKED[name] for name in names]) for title, names in GROUPS]
        return site.render(
            request, "history.html", narrowing=narrowing, presets=PRESETS, names=NAMES, groups=groups,
            overview=finding(overview.answer), found_at=overview.at, root=archive.root, nothing=not overview.answer.rows[0][0],
            first=[_at_first(one, narrowing) for one in found],
        )  # fmt: skip

    async def question(request: Request) -> Response:
        """Page of a question and its answer."""
        name, _, kind = request.path_params["question"].partition(".")
        if name not in ASKED or kind not in {"", "csv", "json"}:
            known = ", ".join(ASKED)
            return site.render(
                request, "message.html", status=404, title="There is no such question",
                text=f"History has no question {name!r}. There are: {known}.", back="/history",
            )  # fmt: skip
        asked = QuestionQuery.of(request.query_params, site.clock())
        one, filters, limit = question_asked(name, asked)
        try:
            found = await archive.ask(one, filters, limit)
            timeline = one.plot is not None and one.plot.kind == "timeline"
            window = await window_of(archive, asked.narrowing) if timeline and not kind else None
        except TrustfoldError as error:
            return unanswered(site, request, one.title, asked.narrowing, error)
        part = shown(found, asked)
        if kind:
            return _file(name, kind, part.answer)
        return _page_of(site, request, asked, part, window)

    return [Route("/history", history), Route("/history/{question}", question)]


def _at_first(answer: QuestionAnswer, narrowing: PageFilters) -> tuple[CatalogueQuestion, str, Markup, Markup]:
    """An answer of the history's first page: its question, finding, picture, and if it has none its first rows."""
    few = answer._replace(rows=answer.rows[: FEW if paged(answer.question) else None])
    drawn = shown_figure(few, narrowing, rows=False)
    rows = [row[:4] for row in few.rows]
    listed = table(few.columns[:4], rows, linked(narrowing), answer.question.title) if rows and not drawn else ""
    return answer.question, finding(answer), drawn, Markup(listed)  # noqa: S704 - all parts are escaped


def unanswered(
    site: PageContext, request: Request, title: str, narrowing: PageFilters, error: TrustfoldError, **known: Any
) -> Response:
    """Error page: why the history gives no answer, and what to do."""
    recorded = not isinstance(error, QuestionUnanswered) or error.recorded
    return site.render(
        request, "unanswered.html", status=503 if recorded else 200, title=title, narrowing=narrowing, presets=PRESETS,
        names=NAMES, recorded=recorded, recording=site.archive.root is not None and site.archive.root.is_dir(),
        why=str(error), **known,
    )  # fmt: skip


def _file(name: str, kind: str, answer: QuestionAnswer) -> Response:
    if kind == "csv":
        body, media_type = csv_of(answer), "text/csv"
    else:
        rows = [{key: plain(value) for key, value in zip(answer.columns, row, strict=True)} for row in answer.rows]
        body, media_type = orjson.dumps(rows, option=orjson.OPT_INDENT_2), "application/json"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{kind}"', "Cache-Control": "no-store"}
    return Response(body, media_type=media_type, headers=headers)


async def window_of(archive: HistoryArchive, narrowing: PageFilters) -> TimeAxis | None:
    """Time range of an axis, up to the last known time; None if nothing is recorded.

    Raises:
        QuestionUnanswered: as `HistoryArchive.ask`.
    """
    ((begin, end),) = (await archive.ask(_WINDOW, narrowing.filters)).answer.rows
    return TimeAxis(begin, end) if begin is not None and end is not None and begin < end else None


def cell_link(narrowing: PageFilters) -> Callable[[dict[str, Any]], str]:
    """URL of a heat map cell: the failures of that model with that tool."""
    carried = narrowing.carried("tool", "model")
    return lambda row: link("/history/signatures", carried, tool=row["tool"], model=row["model"])


def shown_figure(
    answer: QuestionAnswer, narrowing: PageFilters, window: TimeAxis | None = None, *, rows: bool = True
) -> Markup:
    """Figure of an answer with its finding and its rows as a table; empty if nothing can be drawn."""
    question = answer.question
    timeline = question.plot is not None and question.plot.kind == "timeline"
    drawn = picture(answer, window if timeline else None, cell_link(narrowing))
    if not drawn.svg:
        return Markup()
    told = table(answer.columns, answer.rows, linked(narrowing), question.title) if rows else ""
    return Markup(figure(drawn, question.title, finding(answer), told))  # noqa: S704 - all parts are escaped


def _page_of(
    site: PageContext, request: Request, asked: QuestionQuery, part: AnswerPage, window: TimeAxis | None
) -> Response:
    one, narrowing = part.answer.question, asked.narrowing
    rows = table(part.answer.columns, part.answer.rows, linked(narrowing), one.title)
    return site.render(
        request, "question.html", question=one, narrowing=narrowing, presets=PRESETS, names=NAMES, asked=asked, part=part,
        finding=finding(part.picture), figure=shown_figure(part.picture, narrowing, window, rows=False),
        table=Markup(rows),  # noqa: S704 - all parts are escaped
        sql=copied_sql(one, asked.rows),
    )  # fmt: skip
