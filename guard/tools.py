"""What a guard knows about tools: their nature, their limits, and for resilient calls what they are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..schemas.tool_envelopes import DedupeMode
from .guarantees import amount
from .settings import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool.

    Its nature is declared, never guessed from the name: a guess would let a call be made twice, or its result be kept
    for a day. `read_only` tools are retried, and their results are kept for nobody; a tool declared as not read-only
    has its results kept for calls that are the same; of a tool about which nothing is declared neither happens.

    Attributes:
        name: as the model names it.
        function: what makes the call; needed for calls by name.
        read_only: True: it changes nothing; False: it does; None: nothing is known.
        idempotent: doing it twice is doing it once.
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
        """Refuse a cost that is none.

        Raises:
            ConfigError: the cost is NaN, negative, infinite, or no number.
        """
        if self.cost_usd is not None and not callable(self.cost_usd):
            amount(self.cost_usd)

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
