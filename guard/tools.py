"""What a guard knows about tools: their nature, their limits, and for resilient calls what they are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError
from ..schemas.fields import MAX_SPAN_MS
from ..schemas.tool_envelopes import DedupeMode
from .control_flow import Passthrough
from .guarantees import amount
from .settings import SCOPES, RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool.

    Its nature is declared, never guessed from the name: a guess would let a call be made twice, or be answered by
    another one. Three promises are declared apart: that twins in flight may be one call (`read_only` or `dedupe`), that
    later twins get the first one's result (`dedupe`), and that a call may be tried again (`read_only` or `idempotent`).
    Of a tool about which nothing is declared none holds.

    Attributes:
        name: as the model names it.
        function: what makes the call; needed for calls by name.
        read_only: True: it changes nothing; False: it does; None: nothing is known.
        idempotent: doing it twice is doing it once, so it may be tried again.
        dedupe: calls with the same parameters are one call, and later ones are answered from it; for changes, never
            for commands whose answer depends on the world.
        scope: which calls may be the same: those of one `session`, or `global`; None: the guard's setting.
        volatile_params: parameters that do not count when calls are compared; every other one does.
        passthrough: further exceptions of it that steer the program and are no failures.
        service: MCP server behind it.
        plugin_name: what provides it.
        description: what it is for, in words; scenarios are compared with it.
        tags: marks by which a resilient call narrows its choice.
        timeout_ms: milliseconds one attempt may take; None: as long as it wants.
        retry: its own policy; None: the guard's.
        dedupe_mode: its own mode; None: the guard's.
        cost_usd: US dollars a call costs, checked against the session's limits before each call; or a function that
            works the cost out from the output, known only afterwards.
        annotations: further MCP hints, sent with every call.
    """

    name: str
    function: Callable[..., Any] | None = None
    read_only: bool | None = None
    idempotent: bool | None = None
    dedupe: bool | None = None
    scope: str | None = None
    volatile_params: frozenset[str] = frozenset()
    passthrough: Passthrough = ()
    service: str | None = None
    plugin_name: str | None = None
    description: str = ""
    tags: frozenset[str] = frozenset()
    timeout_ms: float | None = None
    retry: RetryPolicy | None = None
    dedupe_mode: DedupeMode | None = None
    cost_usd: float | Callable[[Any], float] | None = None
    annotations: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is no tool.

        Raises:
            ConfigError: a scope, a time limit or a cost that is none.
        """
        if self.scope is not None and self.scope not in SCOPES:
            raise ConfigError(f"scope is {self.scope!r}; use {' or '.join(SCOPES)}")
        limit = self.timeout_ms
        number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (number and 0 < limit <= MAX_SPAN_MS):
            raise ConfigError(f"timeout_ms is {limit!r}; use milliseconds above 0, or leave it out")
        if self.cost_usd is not None and not callable(self.cost_usd):
            amount(self.cost_usd)

    @property
    def joins(self) -> bool:
        """Whether calls with the same parameters at the same time are one call."""
        return bool(self.read_only or self.dedupe)

    @property
    def may_repeat(self) -> bool:
        """Whether making the call twice does no harm."""
        return bool(self.read_only or self.idempotent)

    @property
    def hints(self) -> dict[str, Any] | None:
        """MCP hints that its events carry; None where nothing is declared."""
        hints = dict(self.annotations)
        if self.read_only is not None:
            hints["readOnlyHint"] = self.read_only
        if self.idempotent is not None:
            hints["idempotentHint"] = self.idempotent
        return hints or None


class ToolBook:
    """The tools of a guard, by name; a name it does not know is a tool about which nothing is declared."""

    def __init__(self) -> None:
        """Start empty."""
        self._tools: dict[str, Tool] = {}
        self._unknown: dict[str, Tool] = {}

    def add(self, tool: Tool) -> Tool:
        """Remember a tool; a later one of the same name takes its place."""
        self._tools[tool.name] = tool
        return tool

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._tools

    def get(self, name: str) -> Tool:
        """The tool of this name."""
        tool = self._tools.get(name) or self._unknown.get(name)
        if tool is None:
            if len(self._unknown) >= 10_000:  # models invent names
                self._unknown.clear()
            tool = self._unknown[name] = Tool(name=name)
        return tool

    def known(self) -> list[Tool]:
        """Every tool that was added."""
        return list(self._tools.values())
