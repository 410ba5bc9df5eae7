"""Interface of a guard for its parts: sessions, permission, blocking calls and resilient calls.

`ToolGuard` implements it; the parts import this module instead of `guard.py`, which imports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Protocol

from .attempts import Function, Runner
from .backends.base import Backend
from .clock import Clock
from .privacy import Privacy
from .publisher import Publisher
from .result import ToolResult
from .settings import GuardSettings
from .state_cache import StateView, Trust
from .tools import ToolRegistry


class GuardInterface(Protocol):
    """Attributes and methods of a guard that its parts use; meanings as in `ToolGuard`."""

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
        **options: Any,
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

    @property
    def report_failure(self) -> Callable[..., bool]:
        """Method that reports a failure without a call of its own; arguments as in `ToolGuard.report_failure`."""

    def report_success(
        self, tool_name: str, *, session_id: str | None = None, domain: str | None = None, service: str | None = None
    ) -> bool:
        """Report a success of a tool."""
