"""All paths of the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from starlette.routing import BaseRoute, Route

from . import decision, history, models, now, orders, session, sessions, sign_in, tool
from .live import live
from .render import Guarded, Site, static_file


def dashboard_routes(site: Site) -> Sequence[BaseRoute]:
    """Routes for a Starlette application, to be added behind all others.

    `Access` (streams/embedded/access.py) must stand in front: it leaves in `request.state.role` who asks.
    """
    pages: list[Route] = [
        *now.now_routes(site),
        *sessions.sessions_routes(site),
        *session.session_routes(site),
        *decision.decision_routes(site),
        *tool.tool_routes(site),
        *models.model_routes(site),
        *history.history_routes(site),
        *orders.order_routes(site),
        *sign_in.sign_in_routes(site),
        Route("/live", partial(live, hub=site.hub)),
        Route("/static/{name}", static_file),
    ]

    for route in pages:
        route.app = Guarded(route.app)
    return pages
