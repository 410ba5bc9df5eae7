"""Parts shared by the steps of a guarded call; created once per guard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .breaker import BreakerGate
from .clock import Clock
from .hooks import Hooks
from .metrics import Metrics
from .publisher import Publisher
from .settings import GuardSettings
from .tracing import Tracing

if TYPE_CHECKING:
    from .backends.base import Backend


@dataclass(frozen=True, slots=True)
class Services:
    """Parts of one guard.

    Attributes:
        backend: transport of events, states and decisions.
        settings: settings of all calls.
        clock: clock of the guard.
        publisher: creates and sends events.
        gate: circuit gate.
        hooks: hooks of the platform.
        metrics: counters.
        tracing: spans of OpenTelemetry.
    """

    backend: Backend
    settings: GuardSettings
    clock: Clock
    publisher: Publisher
    gate: BreakerGate
    hooks: Hooks
    metrics: Metrics
    tracing: Tracing
