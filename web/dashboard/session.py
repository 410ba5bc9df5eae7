"""The Sessions page and the page of one session: the timeline of what an agent did and what was decided."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .render import Site


def session_routes(site: Site) -> Sequence[Route]:
    """Paths of these pages."""

    async def sessions(request: Request) -> Response:
        """Every session, those to look at first on top."""
        return site.render(request, "sessions.html")

    async def session(request: Request) -> Response:
        """One session as a timeline."""
        return site.render(request, "session.html")

    async def decision(request: Request) -> Response:
        """One decision with the events behind it."""
        return site.render(request, "decision.html")

    return [Route("/sessions", sessions), Route("/sessions/{id}", session), Route("/decisions/{id}", decision)]
