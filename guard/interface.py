"""Interface of a guard to its sessions and plugins, and the services that the steps of a call share.

The parts import this module instead of `guard.py`, which imports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

from .backends.base import GuardBackend
from .breaker import BreakerGate
from .clock import GuardClock
from .hooks import GuardHooks
from .metrics import GuardMetrics
from .options import CallIds, CallOptions, FailureDetails
from .privacy import PrivacyFilter
from .publisher import EventPublisher
from .result import ToolResult
from .settings import GuardSettings
from .state_cache import StateView, TrustEntry
from .tool_threads import Function, Runner
from .tools import ToolRegistry
from .tracing import GuardTracing


class GuardInterface(Protocol):
    """Attributes and methods of a guard that sessions, plugins and resilient calls use; meanings as in `ToolGuard`."""

    settings: GuardSettings
    backend: GuardBackend
    clock: GuardClock
    tools: ToolRegistry
    privacy: PrivacyFilter
    publisher: EventPublisher
    home: asyncio.AbstractEventLoop | None

    @property
    def sessions(self) -> MutableMapping[str, Any]:
        """Active sessions by id."""

    @property
    def view(self) -> StateView:
        """View of the latest public states."""

    async def call(
        self,
        tool_name: str,
        function: Function | None = None,
        args: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        runner: Runner | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult:
        """Make one guarded call."""

    def trust_of(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None = None,
        *,
        session_id: str = "",
        workspace_id: str | None = None,
    ) -> TrustEntry | None:
        """Return the strictest trust of a call's keys; None if it is trusted."""

    def report_failure(
        self,
        tool_name: str,
        error: str | dict[str, Any] | BaseException,
        *,
        session_id: str | None = None,
        **details: Unpack[FailureDetails],
    ) -> bool:
        """Report a failure without a call of its own."""

    def report_rejected(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None,
        error: str | dict[str, Any] | BaseException,
        *,
        session_id: str | None = None,
        **ids: Unpack[CallIds],
    ) -> bool:
        """Report a call that never ran."""

    def report_success(
        self, tool_name: str, *, session_id: str | None = None, domain: str | None = None, service: str | None = None
    ) -> bool:
        """Report a success of a tool."""


@dataclass(frozen=True, slots=True)
class GuardServices:
    """Parts of one guard that the steps of a call share; created once per guard."""

    backend: GuardBackend
    settings: GuardSettings
    clock: GuardClock
    publisher: EventPublisher
    gate: BreakerGate
    hooks: GuardHooks
    metrics: GuardMetrics
    tracing: GuardTracing
