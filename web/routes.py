"""Routes that `trustfold up` serves in addition to the engine's API."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starlette.routing import BaseRoute

from ..streams.embedded.server import Service
from .check import check_routes, policy_of
from .dashboard.embedded_source import EmbeddedSource
from .dashboard.history_answers import Archive
from .dashboard.live import Hub
from .dashboard.render import Site
from .dashboard.routes import dashboard_routes, error_page
from .hooks import Hooks
from .metrics import metrics_routes
from .otlp import otlp_routes


def more_routes(service: Service, user: str = "", history: Path | None = None) -> Sequence[BaseRoute]:
    """Routes for an engine that is served.

    `user` owns the sessions of coding agents; `history` is the directory of recorded Parquet files.
    """
    policy = policy_of(service)  # shared by all, so that an approval is used only once
    source = EmbeddedSource(service, history)
    hub = Hub(source.board)
    service.ending.append(hub.stop)
    site = Site(source, service.sign_ins, hub, archive=Archive(history, refusal=lambda: source.foreign))
    service.ending.append(site.archive.close)
    service.error_page = error_page(site)
    return [
        *Hooks(service, policy, user).routes(),
        *check_routes(service, policy),
        *otlp_routes(service),
        *metrics_routes(service),
        *dashboard_routes(site),
    ]
