"""The Now page: what needs a person, first."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .render import Site


def now_routes(site: Site) -> Sequence[Route]:
    """Path of this page."""

    async def now(request: Request) -> Response:
        """What needs a person, first."""
        return site.render(request, "now.html")

    return [Route("/", now)]
