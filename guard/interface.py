"""Interface of a guard to its sessions and plugins, and the services that the steps of a call share.

The parts import this module instead of `guard.py`, which imports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

from .backends.base import Backend
from .breaker import BreakerGate
from .clock import Clock
from .hooks import Hooks
from .metrics import Metrics
from .options import CallIds, CallOptions, FailureDetails
from .privacy import Privacy
from .publisher import Publisher
from .result import ToolResult
from .settings import GuardSettings
from .state_cache import StateView, Trust
from .tool_threads import Function, Runner
from .tools import ToolRegistry
from .tracing import Tracing


class GuardInterface(Protocol):
    """Attributes and methods of a guard that sessions, plugins and resilient calls use; meanings as in `ToolGuard`."""

    settings: GuardSettings
    backend: Backend
    clock: Clock
    tools: ToolRegistry
    privacy: Privacy
    publisher: Publisher
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
    ) -> Trust | None:
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
class Services:
    """Parts of one guard that the steps of a call share; created once per guard."""

    backend: Backend
    settings: GuardSettings
    clock: Clock
    publisher: Publisher
    gate: BreakerGate
    hooks: Hooks
    metrics: Metrics
    tracing: Tracing
