"""Everything that `trustfold up` serves beside the engine's own API."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from ..streams.embedded.server import Service
from .check import check_routes
from .hooks import Hooks
from .otlp import otlp_routes
from .states import policy_of


def more_routes(service: Service, user: str = "") -> Sequence[BaseRoute]:
    """Routes for an engine that is served; `user` owns the sessions of coding agents."""
    policy = policy_of(service)  # one for all, so that an approval is used once
    return [*Hooks(service, policy, user).routes(), *check_routes(service, policy), *otlp_routes(service)]
