"""ASGI application of `trustfold web`: the dashboard of a Kafka deployment, with the roles of `up`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..streams.embedded.roles import Access
from ..streams.embedded.sign_in import Roles, SignIns
from ..streams.kafka.records import ended
from .dashboard.history_answers import Archive
from .dashboard.kafka_source import KafkaSource
from .dashboard.live import Hub
from .dashboard.render import Site
from .dashboard.routes import dashboard_routes, error_page


def make_app(source: KafkaSource, roles: Roles) -> Starlette:
    """The application; while it runs it follows the topics of `source`."""
    hub, sign_ins = Hub(source.board), SignIns(roles)
    archive = Archive(source.history, refusal=lambda: source.foreign)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(source.run())
        yield
        await ended(following)
        archive.close()

    async def health(_request: Request) -> Response:
        """200 while this process works, also without brokers: to start it again would not bring them back."""
        fresh = source.freshness()
        body = {
            "status": fresh.fault or "ok",
            "behind": fresh.behind,
            "newest_ms": fresh.newest_ms,
            "skipped": fresh.skipped,
        }
        return Response(orjson.dumps(body), media_type="application/json")

    site = Site(source, sign_ins, hub, archive=archive)
    page = error_page(site)

    def fault(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
        told = Response(orjson.dumps({"error": error.detail}), error.status_code, media_type="application/json")
        return page(request, error) or told

    app = Starlette(
        routes=[Route("/healthz", health), *dashboard_routes(site)],
        exception_handlers={HTTPException: fault},
        middleware=[Middleware(Access, roles=roles, sign_ins=sign_ins)],
        lifespan=lifespan,
    )
    app.state.end_streams = hub.stop
    return app
