"""Backends of a guard: in this process, a running `trustfold up` over HTTP, or Kafka.

A backend is imported only when its address selects it, as each has its own dependencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError, NotInstalled
from ..clock import SystemClock
from ..metrics import GuardMetrics
from ..settings import GuardSettings

if TYPE_CHECKING:
    from .base import GuardBackend


def backend_at(
    address: str,
    metrics: GuardMetrics,
    settings: GuardSettings,
    *,
    topic_prefix: str | None = None,
    token: str | None = None,
    client_arguments: Mapping[str, Any] | None = None,
) -> GuardBackend:
    """Create the backend for an address, not started."""
    scheme, _, rest = address.partition("://")
    if scheme == "kafka" and rest:
        try:
            from .kafka import KafkaBackend
        except ImportError as missing:
            raise NotInstalled(f"a guard at {address}", missing) from missing
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


def disabled_backend(metrics: GuardMetrics) -> GuardBackend:
    """Backend of a disabled guard: publishes nothing."""
    from .memory import MemoryBackend

    return MemoryBackend(SystemClock(), metrics)
