"""All paths of the dashboard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from functools import partial

import orjson
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, request_response

from ...errors import ConfigError, TrustfoldError
from ...history.reports import BY_NAME
from ...streams.embedded.roles import API
from . import decision, history, models, now, orders, search, session, sessions, sign_in, tool, whatif
from .history_answers import QuestionRequest
from .history_filters import DEFAULT_SPAN, EVERYTHING
from .live import live
from .render import HEADERS, PageContext, SecurityHeaders, static_file

Answer = Callable[[Request], Awaitable[Response]]
ErrorPage = Callable[[Request, HTTPException], Response | None]


def dashboard_routes(site: PageContext) -> Sequence[BaseRoute]:
    """Routes for a Starlette application, to be added behind all others.

    `AccessMiddleware` (streams/embedded/roles.py) must run before them: it sets `request.state.role`.
    """
    site.archive.find_ahead(lambda: _asked_most(site.clock()))
    pages: list[Route] = [
        *now.now_routes(site),
        *sessions.sessions_routes(site),
        *session.session_routes(site),
        *decision.decision_routes(site),
        *tool.tool_routes(site),
        *models.model_routes(site),
        *whatif.whatif_routes(site),
        *history.history_routes(site),
        *orders.order_routes(site),
        *search.search_routes(site),
        *sign_in.sign_in_routes(site),
    ]
    for page in pages:
        page.app = SecurityHeaders(request_response(_with_errors(page.endpoint, site)))
    others = [Route("/live", partial(live, hub=site.hub)), Route("/static/{name}", static_file)]
    for other in others:
        other.app = SecurityHeaders(other.app)
    return [*pages, *others]


def _asked_most(now: datetime) -> Iterator[QuestionRequest]:
    """Questions of the history's pages without filters, over the long times that pages offer; others take no time."""
    for since in (DEFAULT_SPAN, "30d", EVERYTHING):
        asked = history.QuestionQuery.of(QueryParams(since=since), now)
        yield tool.tools_asked(asked.narrowing)
        yield from models.models_asked(asked.narrowing)
        for name in BY_NAME:
            question, filters, limit = history.question_asked(name, asked)
            yield QuestionRequest(filters, question, limit)


def _with_errors(answer: Answer, site: PageContext) -> Answer:
    """Wrap a page: errors become an error page, and live updates start at the state before rendering."""

    async def answered(request: Request) -> Response:
        request.state.mark = site.hub.mark  # before any read, so that later changes are notified
        try:
            return await answer(request)
        except HTTPException as refused:
            status, text = refused.status_code, refused.detail
        except ConfigError as wrong:
            status, text = 400, str(wrong)
        except TrustfoldError as fault:
            status, text = 503, str(fault)
        if request.url.path.startswith(API):
            return Response(orjson.dumps({"error": text}), status, media_type="application/json")
        return site.render(request, "message.html", status=status, title="This cannot be shown", text=text, back="/")

    return answered


def error_page(site: PageContext) -> ErrorPage:
    """Function that renders an error of the server as a page; it returns None for programs, which get JSON."""

    def page(request: Request, error: HTTPException) -> Response | None:
        path = request.url.path
        if request.method not in {"GET", "HEAD"} or path.startswith(API):
            return None
        if "text/html" not in request.headers.get("accept", ""):
            return None
        request.state.mark = site.hub.mark
        text = f"There is no page {path}." if error.status_code == 404 else error.detail
        answer = site.render(
            request, "message.html", status=error.status_code, title="This cannot be shown", text=text, back="/"
        )
        answer.headers.update(HEADERS)
        return answer

    return page
