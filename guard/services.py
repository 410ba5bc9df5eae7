"""What the steps of a guarded call share: made once for each guard, given to each step as a whole."""

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
        backend: where events go and the view comes from.
        settings: what holds for all calls.
        clock: the time.
        publisher: makes events and sends them.
        gate: the circuits of calls.
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
