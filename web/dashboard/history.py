"""The History pages: every question of the catalogue, filtered."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .render import Site


def history_routes(site: Site) -> Sequence[Route]:
    """Paths of these pages."""

    async def history(request: Request) -> Response:
        """The questions."""
        return site.render(request, "history.html")

    async def question(request: Request) -> Response:
        """One question and its answer."""
        return site.render(request, "question.html")

    return [Route("/history", history), Route("/history/{question}", question)]
