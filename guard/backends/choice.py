"""Which backend an address means; each is imported when it is chosen, for each needs libraries of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from ..clock import SystemClock
from ..metrics import Metrics
from ..settings import GuardSettings

if TYPE_CHECKING:
    from .base import Backend


def backend_at(
    address: str,
    metrics: Metrics,
    settings: GuardSettings,
    *,
    topic_prefix: str | None = None,
    token: str | None = None,
    client_arguments: Mapping[str, Any] | None = None,
) -> Backend:
    """A backend that follows what stands at an address; not started.

    Raises:
        ConfigError: the address makes no sense.
    """
    scheme, _, rest = address.partition("://")
    if scheme == "kafka" and rest:
        from .kafka import KafkaBackend  # extra `kafka`

        return KafkaBackend(
            rest,
            metrics,
            settings.buffer_events,
            topic_prefix=topic_prefix,
            client_arguments=dict(client_arguments or {}),
        )
    if scheme in {"http", "https"} and rest:
        from .http import HttpBackend

        return HttpBackend(address, metrics, settings.buffer_events, token=token)
    raise ConfigError(f"{address!r} is no address; use kafka://host:9092 or http://127.0.0.1:8321")


def nowhere(metrics: Metrics) -> Backend:
    """A backend for a guard that is switched off."""
    from .memory import MemoryBackend

    return MemoryBackend(SystemClock(), metrics)
