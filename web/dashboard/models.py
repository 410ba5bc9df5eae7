"""The Models page: how models compare."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .render import Site


def model_routes(site: Site) -> Sequence[Route]:
    """Paths of these pages."""

    async def models(request: Request) -> Response:
        """All models."""
        return site.render(request, "models.html")

    return [Route("/models", models)]
