"""Routes that `trustfold up` serves besides the engine's API, and the application of `trustfold web`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..errors import TrustfoldError
from ..streams.embedded.roles import AccessMiddleware
from ..streams.embedded.server import EmbeddedService
from ..streams.embedded.sign_in import RoleTokens, SignIns
from .check import check_routes, policy_of
from .dashboard.embedded_source import EmbeddedSource
from .dashboard.history_answers import HistoryArchive
from .dashboard.live import StreamHub
from .dashboard.render import PageContext
from .dashboard.routes import dashboard_routes, error_page
from .hooks import AgentHooks
from .otlp import otlp_routes
from .server_metrics import metrics_routes
from .webhook import IncidentWebhook, WebhookTarget

if TYPE_CHECKING:
    from .dashboard.kafka_source import KafkaSource


def more_routes(
    service: EmbeddedService, user: str = "", history: Path | None = None, webhook: WebhookTarget | None = None
) -> Sequence[BaseRoute]:
    """Routes for an engine that is served.

    `user` owns the sessions of coding agents; `history` is the directory of recorded Parquet files; `webhook` is told
    of incidents.
    """
    policy = policy_of(service)  # shared by all, so that an approval is used only once
    source = EmbeddedSource(service, history)
    hub = StreamHub(source.board)
    service.ending.append(hub.stop)
    site = PageContext(source, service.sign_ins, hub, archive=HistoryArchive(history, refusal=lambda: source.foreign))
    service.ending.append(site.archive.close)
    service.error_page = error_page(site)
    notifier = IncidentWebhook(source.board, webhook) if webhook is not None else None
    if notifier is not None:
        service.beside.append(notifier.run)

    async def incidents(_request: Request) -> Response:
        """All incidents, most urgent first; the first thing that `trustfold status` shows."""
        with suppress(TrustfoldError):
            await source.renew()
        found = [one.record() for one in source.board.incidents(time.time_ns() // 1_000_000)]
        fault = notifier.fault if notifier is not None else ""
        return Response(orjson.dumps({"incidents": found, "webhook": fault}), media_type="application/json")

    return [
        Route("/v1/incidents", incidents),
        *AgentHooks(service, policy, user).routes(),
        *check_routes(service, policy),
        *otlp_routes(service),
        *metrics_routes(service, source.board, notifier),
        *dashboard_routes(site),
    ]


def kafka_app(source: KafkaSource, roles: RoleTokens, webhook: WebhookTarget | None = None) -> Starlette:
    """ASGI application of `trustfold web`: the dashboard alone; while it runs it follows the topics of `source`.

    `webhook` is told of incidents.
    """
    from ..streams.kafka.records import ended  # noqa: PLC0415 - Kafka is an extra

    hub, sign_ins = StreamHub(source.board), SignIns(roles)
    archive = HistoryArchive(source.history, refusal=lambda: source.foreign)
    notifier = IncidentWebhook(source.board, webhook) if webhook is not None else None

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(source.run())]
        if notifier is not None:
            tasks.append(asyncio.create_task(notifier.run()))
        yield
        for task in tasks:
            await ended(task)
        archive.close()

    async def health(_request: Request) -> Response:
        """200 while this process works, also without brokers: to start it again would not bring them back."""
        fresh = source.freshness()
        body = {
            "status": fresh.fault or "ok",
            "behind": fresh.behind,
            "newest_ms": fresh.newest_ms,
            "skipped": fresh.skipped,
            "skipped_last": fresh.skipped_last,
            "webhook": notifier.fault if notifier is not None else "",
        }
        return Response(orjson.dumps(body), media_type="application/json")

    site = PageContext(source, sign_ins, hub, archive=archive)
    page = error_page(site)

    def fault(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
        plain = Response(orjson.dumps({"error": error.detail}), error.status_code, media_type="application/json")
        return page(request, error) or plain

    app = Starlette(
        routes=[Route("/healthz", health), *dashboard_routes(site)],
        exception_handlers={HTTPException: fault},
        middleware=[Middleware(AccessMiddleware, roles=roles, sign_ins=sign_ins)],
        lifespan=lifespan,
    )
    app.state.end_streams = hub.stop
    return app
