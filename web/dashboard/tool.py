"""The Tools page and the page of one tool, service or key."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .render import Site


def tool_routes(site: Site) -> Sequence[Route]:
    """Paths of these pages."""

    async def tools(request: Request) -> Response:
        """Every tool and service by health."""
        return site.render(request, "tools.html")

    async def tool(request: Request) -> Response:
        """One tool, service or key."""
        return site.render(request, "tool.html")

    return [Route("/tools", tools), Route("/tools/{key:path}", tool)]
