"""Registry of tools: their declared nature, their limits, and their descriptions for resilient calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError
from ..schemas.fields import MAX_SPAN_MS
from ..schemas.tool_envelopes import DedupeMode
from .errors import Passthrough
from .failure import Answers
from .guarantees import amount
from .settings import SCOPES, STORE_DOWN, RetryPolicy, check_switches


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRegistration:
    """Registration of one tool.

    A tool's nature is declared, never guessed from its name: a wrong guess would repeat a call or answer it from
    another one. Three properties are declared separately: concurrent duplicates may be one call (`read_only` or
    `dedupe`), later duplicates get the first result (`dedupe`), and a call may be retried (`read_only` or
    `idempotent`). Without a declaration none applies.

    Attributes:
        name: name that the model uses.
        function: function that makes the call; needed for calls by name.
        read_only: True: it changes nothing; False: it does; None: unknown.
        idempotent: repeating it changes nothing more, so it may be retried.
        dedupe: calls with the same parameters are one call, and later ones get its result; for changes, never for
            commands whose answer depends on external state.
        scope: calls that may share a key: those of one `session`, or `global`; None: the guard's setting.
        exact_types: computed keys tell 1 from 1.0, 0 from -0.0, and dictionaries by the order of their names.
        on_store_down: `wait`, `refuse` or `local`, as of `DedupePolicy`; None: the guard's.
        reconcile: called with the key and the arguments of a call whose earlier run was cut off; asks the service, and
            returns `ChangeSettlement("done", result)`, `ChangeSettlement("failed")`, or None while nobody can know.
        volatile_params: parameters that are ignored when calls are compared; all others count.
        passthrough: further control-flow exceptions of the tool that are not failures.
        answers: failures by which the tool answers, so that neither trust nor circuits count them: exception classes,
            HTTP statuses, exit codes, or functions that say so of the exception or the result.
        service: name of its MCP server.
        plugin_name: name of its plugin.
        description: purpose in words; compared with scenarios.
        tags: tags that resilient calls select by.
        timeout_ms: time limit of one attempt in milliseconds; None: unlimited.
        retry: its own retry policy; None: the guard's.
        dedupe_mode: its own mode; None: the guard's.
        cost_usd: cost of a call in US dollars, checked against the session's limits before each call; or a function
            that computes the cost from the output, known only afterwards.
        shadow: True: its calls are only observed; False: enforced, also by a guard in shadow mode; None: as the guard.
        annotations: further MCP hints, published with every call.
        workspace_digest: called after each call: a text that is equal for equal states of the workspace, or None. It
            shows whether anything has changed between two calls, so it must be quick: it runs before the result is
            returned.
    """

    name: str
    function: Callable[..., Any] | None = None
    read_only: bool | None = None
    idempotent: bool | None = None
    dedupe: bool | None = None
    scope: str | None = None
    exact_types: bool = False
    on_store_down: str | None = None
    reconcile: Callable[[str | None, Mapping[str, Any]], Any] | None = None
    volatile_params: frozenset[str] = frozenset()
    passthrough: Passthrough = ()
    answers: Answers = ()
    service: str | None = None
    plugin_name: str | None = None
    description: str = ""
    tags: frozenset[str] = frozenset()
    timeout_ms: float | None = None
    retry: RetryPolicy | None = None
    dedupe_mode: DedupeMode | None = None
    cost_usd: float | Callable[[Any], float] | None = None
    shadow: bool | None = None
    annotations: dict[str, Any] = field(default_factory=dict)
    workspace_digest: Callable[[], str | None] | None = None

    def __post_init__(self) -> None:
        """Validate the registration.

        Raises:
            ConfigError: a switch, the scope, the time limit, the cost, the annotations, the answers or the digest are
                invalid.
        """
        check_switches(self)
        if self.scope is not None and self.scope not in SCOPES:
            raise ConfigError(f"scope is {self.scope!r}; use {' or '.join(SCOPES)}")
        if self.on_store_down is not None and self.on_store_down not in STORE_DOWN:
            raise ConfigError(f"on_store_down is {self.on_store_down!r}; use {', '.join(STORE_DOWN)}")
        if self.reconcile is not None and not callable(self.reconcile):
            raise ConfigError(f"reconcile is {self.reconcile!r}; use a function of a key and arguments")
        limit = self.timeout_ms
        number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (number and 0 < limit <= MAX_SPAN_MS):
            raise ConfigError(f"timeout_ms is {limit!r}; use milliseconds above 0, or leave it out")
        if self.cost_usd is not None and not callable(self.cost_usd):
            amount(self.cost_usd)
        hints: Any = self.annotations
        if not (isinstance(hints, dict) and all(isinstance(name, str) for name in hints)):
            raise ConfigError(f"annotations is {hints!r}; use a mapping from hint to value")
        given: Any = self.answers
        if not isinstance(given, tuple) or not all(_can_be_answer(one) for one in given):
            raise ConfigError(f"answers is {given!r}; use a tuple of exception classes, statuses, codes or functions")
        if self.workspace_digest is not None and not callable(self.workspace_digest):
            raise ConfigError(f"workspace_digest is {self.workspace_digest!r}; use a function without parameters")

    @property
    def joins(self) -> bool:
        """Whether concurrent calls with the same parameters are coalesced."""
        return bool(self.read_only or self.dedupe)

    @property
    def may_repeat(self) -> bool:
        """Whether repeating a call is harmless."""
        return bool(self.read_only or self.idempotent)

    @property
    def hints(self) -> dict[str, Any] | None:
        """MCP hints of its events; None without a declaration."""
        hints = dict(self.annotations)
        if self.read_only is not None:
            hints["readOnlyHint"] = self.read_only
        if self.idempotent is not None:
            hints["idempotentHint"] = self.idempotent
        return hints or None


def _can_be_answer(one: Any) -> bool:
    if isinstance(one, type):
        return issubclass(one, BaseException)
    return callable(one) or (isinstance(one, int) and not isinstance(one, bool) and one > 0)


class ToolRegistry:
    """Registry of a guard's tools by name; unknown names yield a tool without declarations."""

    def __init__(self) -> None:
        """Create an empty registry."""
        self._tools: dict[str, ToolRegistration] = {}
        self._unknown: dict[str, ToolRegistration] = {}

    def add(self, tool: ToolRegistration) -> ToolRegistration:
        """Add a tool; replaces an earlier one of the same name."""
        self._tools[tool.name] = tool
        return tool

    def get(self, name: str) -> ToolRegistration:
        """Return the tool of this name."""
        tool = self._tools.get(name) or self._unknown.get(name)
        if tool is None:
            if len(self._unknown) >= 10_000:  # models invent names
                self._unknown.clear()
            tool = self._unknown[name] = ToolRegistration(name=name)
        return tool

    def known(self) -> list[ToolRegistration]:
        """Return all added tools."""
        return list(self._tools.values())
