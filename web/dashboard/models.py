"""Models page: comparison of models; rates need a minimum number of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...errors import TrustfoldError
from ...history.charts import objects
from ...history.findings import finding, ratio
from ...history.plots import FEW, share_text
from ...history.reports import BY_NAME, CatalogueQuestion, QuestionAnswer
from ...projections.tool.models import Z_95, wilson_bounds
from .history import MOST_ROWS, copied_sql, downloaded, shown_figure, unanswered
from .history_answers import QuestionRequest
from .history_filters import NAMES, PRESETS, PageFilters
from .render import PageContext, link

MOST_MODELS = 200

_MODELS = CatalogueQuestion(
    "every-model",
    "How does every model do?",
    """WITH of_sessions AS MATERIALIZED (
        SELECT model, session_id, count(*) AS calls, count(*) FILTER (verdict <> 'neutral') AS judged FROM tool_calls GROUP BY 1, 2
    ), failed AS (
        SELECT coalesce(model, 'unknown') AS model, count(*) AS failures, count(*) FILTER (severity IN ('invalid_input', 'validation')) AS own_making
        FROM tool_calls WHERE verdict = 'failure' AND expected IS NOT TRUE AND noted IS NOT FALSE GROUP BY 1
    ), calls AS (
        SELECT coalesce(model, 'unknown') AS model, sum(calls)::BIGINT AS calls, sum(judged)::BIGINT AS judged FROM of_sessions GROUP BY 1
    ), detected AS MATERIALIZED (
        SELECT coalesce(model, 'unknown') AS model, session_id, pattern, fingerprint, cleared_by, id FROM patterns
    ), stuck AS (
        SELECT model, count(DISTINCT session_id) AS stuck, count(DISTINCT (session_id, pattern, fingerprint, cleared_by)) AS patterns
        FROM detected GROUP BY model
    ), active AS (
        SELECT model, count(*) AS sessions FROM (SELECT coalesce(model, 'unknown') AS model, session_id FROM of_sessions UNION SELECT model, session_id FROM detected) GROUP BY model
    ), told AS (
        SELECT p.model, count(*) FILTER (n.effective) AS effective, count(n.effective) AS nudges_judged
        FROM nudges n JOIN detected p ON n.pattern_id = p.id WHERE n.delivered GROUP BY p.model
    )
    SELECT model, coalesce(calls, 0) AS calls, coalesce(failures, 0) AS failures, coalesce(judged, 0) AS judged, coalesce(own_making, 0) AS own_making,
           coalesce(sessions, 0) AS sessions, coalesce(stuck, 0) AS stuck, coalesce(patterns, 0) AS patterns,
           1000 * coalesce(patterns, 0) / nullif(calls, 0) AS per_thousand, coalesce(effective, 0) AS effective,
           coalesce(nudges_judged, 0) AS nudges_judged
    FROM active LEFT JOIN calls USING (model) LEFT JOIN failed USING (model) LEFT JOIN stuck USING (model) LEFT JOIN told USING (model) ORDER BY calls DESC, model LIMIT $limit""",
)


class MeasuredShare(NamedTuple):
    """Share with its counts and its 95 % interval."""

    text: str  # `40 % (4/10)`; below `FEW` trials `3/4`; empty without trials
    interval: str  # as text; empty below `FEW` trials
    value: float | None  # the share, 0 to 1; None below `FEW` trials
    url: str  # page of the records behind it


class ModelLine(NamedTuple):
    """Row of the table of models."""

    model: str  # its name
    url: str  # this page, filtered by the model
    calls: int  # number of calls
    sessions: int  # number of sessions
    failed: MeasuredShare  # share of its calls that failed
    own: MeasuredShare  # share of its failures that its own input caused
    stuck: MeasuredShare  # share of its sessions that were stuck
    per_thousand: float | None  # patterns per 1,000 calls; None below `FEW` calls
    patterns: int  # number of patterns
    patterns_url: str  # page of these
    nudged: MeasuredShare  # share of judged nudges that helped


def measured(hits: int, trials: int, url: str) -> MeasuredShare:
    """Share of hits among trials; below `FEW` trials only its counts."""
    if trials < FEW:
        return MeasuredShare(f"{hits}/{trials}" if trials else "", "", None, url)
    low, high = wilson_bounds(hits, trials, Z_95)
    return MeasuredShare(ratio(hits, trials), f"{share_text(low)} to {share_text(high)}", hits / trials, url)


def model_lines(answer: QuestionAnswer, narrowing: PageFilters, sort: str) -> list[ModelLine]:
    """Rows sorted by a name in `_ORDER`; shares of too few trials come last."""
    every = [_line(row, narrowing) for row in objects(answer)]
    return sorted(every, key=lambda one: (*_ORDER[sort](one), one.model))


def _line(row: Mapping[str, Any], narrowing: PageFilters) -> ModelLine:
    def to(question: str) -> str:
        return link(f"/history/{question}", narrowing.carried("model"), model=row["model"])

    return ModelLine(
        row["model"],
        link("/models", narrowing.carried("model"), model=row["model"]),
        row["calls"],
        row["sessions"],
        measured(row["failures"], row["judged"], to("signatures")),
        measured(row["own_making"], row["failures"], to("models")),
        measured(row["stuck"], row["sessions"], to("sessions")),
        row["per_thousand"] if row["calls"] >= FEW else None,
        row["patterns"],
        to("patterns"),
        measured(row["effective"], row["nudges_judged"], to("nudges")),
    )


def _last(value: float | None) -> tuple[bool, float]:
    return value is None, -(value or 0)


_ORDER: dict[str, Any] = {
    "calls": lambda one: (-one.calls,),
    "failures": lambda one: _last(one.failed.value),
    "stuck": lambda one: _last(one.stuck.value),
    "patterns": lambda one: _last(one.per_thousand),
    "nudges": lambda one: _last(one.nudged.value),
    "model": lambda _one: (),
}


def models_asked(narrowing: PageFilters) -> list[QuestionRequest]:
    """Questions of the page of models."""
    pictures = [QuestionRequest(narrowing.filters, BY_NAME[name], 400) for name in ("models", "patterns", "nudges")]
    return [QuestionRequest(narrowing.filters, _MODELS, MOST_MODELS), *pictures]


def model_routes(site: PageContext) -> Sequence[Route]:
    """Route of this page."""
    archive = site.archive

    async def models(request: Request) -> Response:
        """Render the page."""
        narrowing = PageFilters.of(request.query_params, site.clock())
        sort = next((one for one in request.query_params.getlist("sort") if one in _ORDER), "calls")
        try:
            if wanted := request.query_params.get("download"):
                return await downloaded(archive, wanted, [_MODELS], narrowing.filters)
            every, cells, stuck, nudges = await asyncio.gather(
                *(archive.ask(one.question, one.filters, one.limit) for one in models_asked(narrowing))
            )
        except TrustfoldError as error:
            return unanswered(site, request, "Models", narrowing, error)
        pictures = [
            (one.answer.question, finding(one.answer), shown_figure(one.answer, narrowing))
            for one in (cells, stuck, nudges)
        ]
        return site.render(
            request, "models.html", narrowing=narrowing, presets=PRESETS, names=NAMES, lines=model_lines(every.answer, narrowing, sort),
            cut=every.answer.left_out, sort=sort, sorts=_ORDER, pictures=pictures, few=FEW, found_at=every.at,
            sql=copied_sql(_MODELS, MOST_ROWS),
        )  # fmt: skip

    return [Route("/models", models)]
