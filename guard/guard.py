"""The guard: wraps the tool calls of an agent's process (docs/guard.md)."""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, Unpack, overload
from weakref import WeakSet, WeakValueDictionary

from ..errors import ConfigError
from ..rules.rules import RuleSet
from ..schemas.tool_envelopes import ResultStatus, ToolCallEnvelope
from .attempts import AttemptRunner, call_unguarded
from .backends import backend_at, disabled_backend
from .blocking import BlockingCalls
from .breaker import BreakerGate
from .call_builder import CallBuilder, options_of
from .clock import GuardClock, SystemClock, new_id
from .decorators import guarded
from .errors import UNKNOWN_TOOL, EnvelopeRejected
from .flow import CallFlow
from .hooks import GuardHooks
from .idempotency.coalescer import CallCoalescer
from .idempotency.fallback import FallbackDedupeStore
from .idempotency.memory import InMemoryDedupeStore
from .idempotency.unknown import ChangeSettlement
from .interface import GuardServices
from .json_view import clean_text, kind_of, text_of
from .metrics import CALLS, INFLIGHT, INFO, GuardMetrics
from .options import CallOptions, GuardOptions, GuardParts, GuardPlugins, SessionOptions, ToolOptions, check_names
from .permission import PermissionWrapper
from .policy import CheckMixin
from .privacy import PrivacyFilter
from .publisher import EventPublisher
from .reports import ReportMixin
from .request import NO_SESSION, GuardedCall, check_call, is_name, read_envelope
from .result import ToolResult, refused_envelope, rejected_call
from .session import CURRENT, GuardSession
from .settings import GuardSettings, SettingsOptions
from .state_cache import StateView
from .tool_threads import Function, Runner
from .tools import ToolRegistration, ToolRegistry
from .tracing import GuardTracing

if TYPE_CHECKING:
    from .backends.base import GuardBackend
    from .backends.memory import MemoryBackend
    from .idempotency.record import DedupeStore
    from .resilient import ResilientResult


P = ParamSpec("P")
R = TypeVar("R")

FORK_AWARE: WeakSet[Any] = WeakSet()
"""Guards, whose `after_fork` is called in a child process."""


class ToolGuard(CheckMixin, ReportMixin):
    """Wraps tool calls: checks, coalesces, retries and publishes. One per process serves many sessions.

    Attributes:
        settings: settings of all calls.
        tools: registry of tools.
        hooks: hooks of the platform.
        metrics: counters.
        sessions: active sessions by id.
        guard_id: id of this guard in the fleet.
    """

    def __init__(self, backend: GuardBackend, settings: GuardSettings, **parts: Unpack[GuardParts]) -> None:
        """Build a guard from its parts; usually made by `in_memory`, `embedded` or `connect`.

        Args:
            backend: transport of events, states and decisions.
            settings: settings of all calls.
            parts: see `GuardParts`.

        Raises:
            TypeError: there is no such part.
        """
        check_names("ToolGuard", parts, GuardParts.__optional_keys__)
        self.settings = settings
        self.backend = backend
        self.clock = parts.get("clock") or SystemClock()
        self.tools = ToolRegistry()
        self.hooks = GuardHooks()
        self.metrics = parts.get("metrics") or GuardMetrics()
        self.privacy = PrivacyFilter(
            settings.digest_key, send_args=settings.send_args, send_errors=settings.send_errors
        )
        self.guard_id = f"guard-{new_id(self.clock.now_ms())}"
        self.sessions: WeakValueDictionary[str, GuardSession] = WeakValueDictionary()
        self.store: DedupeStore = parts.get("store") or InMemoryDedupeStore(clock=self.clock)
        if not self.store.in_process:
            self.store = FallbackDedupeStore(self.store, self.clock)
        self.publisher = EventPublisher(backend, settings, self.clock, self.privacy)
        self._gate = BreakerGate(backend, self.publisher, settings, self.clock, self.metrics, self.guard_id)
        self._coalescer = CallCoalescer(
            self.store, settings.dedupe, self.privacy, self.clock, self.metrics, settings.passthrough
        )
        self.metrics.read_gauge_from(INFLIGHT, self._coalescer.inflight)
        self.metrics.read_gauge_from(INFO, self._effects)
        self._blocking: BlockingCalls | None = None
        self.home: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._builder = CallBuilder(settings, self.clock)
        services = GuardServices(
            backend=backend,
            settings=settings,
            clock=self.clock,
            publisher=self.publisher,
            gate=self._gate,
            hooks=self.hooks,
            metrics=self.metrics,
            tracing=GuardTracing(enabled=settings.tracing),
        )
        attempts = AttemptRunner(services, parts.get("draw") or random.uniform)
        self._flow = CallFlow(services, self._coalescer, attempts, self._trust)
        self.permission = parts.get("permission")
        FORK_AWARE.add(self)

    def after_fork(self) -> None:
        """Reset in a child process: threads, tasks and connections belong to the parent."""
        self.guard_id = f"guard-{new_id(self.clock.now_ms())}"
        self.metrics.after_fork()
        self.backend.after_fork()
        self.store.after_fork()
        self._gate.after_fork(self.guard_id)
        self._coalescer.after_fork()
        self._blocking = None
        self.home = None

    # --- ways to get one ------------------------------------------------------------------------------------------

    @classmethod
    def in_memory(
        cls,
        *,
        rules: RuleSet | None = None,
        clock: GuardClock | None = None,
        draw: Callable[[float, float], float] = random.uniform,
        **options: Unpack[GuardOptions],
    ) -> Self:
        """Create a guard whose folds run in this process; for tests and agents without a server.

        Args:
            rules: rules of the folds.
            clock: clock; replaced in tests.
            draw: draws the delays before retries; replaced in tests.
            options: see `GuardOptions`.

        Raises:
            ConfigError: a setting is unknown or invalid.
        """
        from .backends.memory import MemoryBackend  # only this backend needs the folds

        if rules is not None:
            options.setdefault("families", rules.tools.families)
            options.setdefault("calls", rules.calls)
            options.setdefault("failures", rules.tools.failures)
        chosen, plugins = _settings_and_plugins(options)
        clock, metrics = clock or SystemClock(), GuardMetrics()
        backend = MemoryBackend(clock, metrics, rules)
        return cls(backend, chosen, clock=clock, metrics=metrics, draw=draw, **plugins)

    @classmethod
    async def embedded(
        cls, path: str, *, wait_s: float = 10.0, token: str | None = None, **options: Unpack[GuardOptions]
    ) -> Self:
        """Create a guard over this machine's durable engine, whose store is the file at `path`.

        Connects to the `trustfold up` that runs over the file, or starts one that ends with the guard (extra `web`).

        Args:
            path: the file.
            wait_s: seconds to wait for the engine and its view.
            token: token of the `up`; by default `TRUSTFOLD_TOKEN`.
            options: see `GuardOptions`.

        Raises:
            ConfigError: a setting is invalid, or no engine could be started; the message says why.
        """
        from .backends.engine_process import engine_over  # as in `connect`
        from .backends.http import HttpBackend

        chosen, plugins = _settings_and_plugins(options)
        metrics = GuardMetrics()
        if not chosen.enabled:
            return cls(disabled_backend(metrics), chosen, metrics=metrics, **plugins)
        engine = await asyncio.to_thread(engine_over, path, token, wait_s)
        backend = HttpBackend(engine.url, metrics, chosen.buffer_events, token=token, engine=engine)
        guard = cls(backend, chosen, metrics=metrics, **plugins)
        await guard._start(wait_s)
        return guard

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        wait_s: float = 10.0,
        strict: bool = False,
        topic_prefix: str | None = None,
        token: str | None = None,
        client_arguments: Mapping[str, Any] | None = None,
        **options: Unpack[GuardOptions],
    ) -> Self:
        """Create a guard connected to Kafka (`kafka://host:port,…`) or a running `trustfold up` (`http://host:port`).

        Args:
            address: address of the brokers or the engine.
            wait_s: seconds to wait for the view; after that the guard works without it and keeps connecting.
            strict: raise if there is no view after `wait_s`.
            topic_prefix: prefix of the topics; by default `trustfold.`, or `TRUSTFOLD_TOPIC_PREFIX`.
            token: token of the `up`; by default `TRUSTFOLD_TOKEN`.
            client_arguments: further arguments of aiokafka's clients, for TLS and SASL.
            options: see `GuardOptions`.

        Raises:
            ConfigError: the address or a setting is invalid; with `strict` also if nothing answers.
        """
        chosen, plugins = _settings_and_plugins(options)
        metrics = GuardMetrics()
        if not chosen.enabled:
            # The kill switch must work without Kafka.
            return cls(disabled_backend(metrics), chosen, metrics=metrics, **plugins)
        backend = backend_at(
            address, metrics, chosen, topic_prefix=topic_prefix, token=token, client_arguments=client_arguments
        )
        guard = cls(backend, chosen, metrics=metrics, **plugins)
        await guard._start(wait_s)
        if strict and not backend.connected:
            await guard.close()
            raise ConfigError(f"nobody answers at {address}; is it running, is the address right?")
        return guard

    async def _start(self, wait_s: float) -> None:
        """Connect the backend and a shared dedupe store, and bind the guard to this loop."""
        self.home = asyncio.get_running_loop()
        if isinstance(self.store, FallbackDedupeStore):
            await self.store.circuit.connect()
        await self.backend.start(wait_s)

    # --- what it knows --------------------------------------------------------------------------------------------

    @property
    def view(self) -> StateView:
        """View of the latest states that differ from their defaults."""
        return self.backend.view

    @property
    def connected(self) -> bool:
        """Whether events are delivered and the view is current."""
        return self.backend.connected

    @property
    def memory(self) -> MemoryBackend:
        """The in-memory backend, for tests.

        Raises:
            TypeError: the guard has another backend.
        """
        from .backends.memory import MemoryBackend  # as in `in_memory`

        if not isinstance(self.backend, MemoryBackend):
            raise TypeError("this guard does not fold in memory")
        return self.backend

    @property
    def permission(self) -> PermissionWrapper | None:
        """The platform's permission plugin, wrapped; assign a plain plugin, or None to remove it."""
        return self._flow.approval.permission

    @permission.setter
    def permission(self, plugin: Any) -> None:
        wrapped = plugin if plugin is None or isinstance(plugin, PermissionWrapper) else PermissionWrapper(plugin, self)
        self._flow.approval.permission = wrapped

    # --- calls ----------------------------------------------------------------------------------------------------

    def register(self, name: str, function: Function | None = None, **nature: Unpack[ToolOptions]) -> ToolRegistration:
        """Register a tool; `nature` are the fields of `ToolRegistration`. With a function it can be called by name."""
        fields: dict[str, Any] = dict(nature)
        for field in ("tags", "volatile_params"):
            if field in fields:
                fields[field] = frozenset(fields[field])
        return self.tools.add(ToolRegistration(name=name, function=function, **fields))

    def _effects(self) -> dict[tuple[str, ...], float]:
        """Samples of `trustfold_tool_info`: 1 for the declared effect of each registered tool that was called."""
        return {
            (tool.name, "read" if tool.read_only else "write"): 1
            for tool in self.tools.known()
            if tool.read_only is not None and self.metrics.has_label(tool.name)
        }

    @overload
    def tool(
        self, function: Callable[P, R], *, name: str | None = None, **nature: Unpack[ToolOptions]
    ) -> Callable[P, R]: ...

    @overload
    def tool(
        self, function: None = None, *, name: str | None = None, **nature: Unpack[ToolOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def tool(self, function: Any = None, *, name: str | None = None, **nature: Unpack[ToolOptions]) -> Any:
        """Decorate a function so that each call is guarded: `@guard.tool(read_only=True)`.

        The function is called as before, in the session of the surrounding `async with guard.session(…)`, and stays of
        its kind: coroutine, plain or generator function. It returns and raises what the original does; a refused call
        raises `CallNotPermitted`. Positional arguments get their names from the signature.
        """
        if function is None:
            return functools.partial(self.tool, name=name, **nature)
        made = self.register(str(name or getattr(function, "__name__", "tool")), function, **nature)
        # A forked child has another `blocking`.
        return guarded(function, made.name, self.settings, self.call, lambda *what: self.blocking.call(*what))  # noqa: PLW0108

    @property
    def blocking(self) -> BlockingCalls:
        """Calls for threads that block; created at first use."""
        if self._blocking is None:
            self._blocking = BlockingCalls(self)
        return self._blocking

    @overload
    async def call(
        self,
        tool_name: str,
        function: Callable[..., Awaitable[R]],
        args: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        runner: Runner | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[R]: ...

    @overload
    async def call(
        self,
        tool_name: str,
        function: Callable[..., R],
        args: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        runner: Runner | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[R]: ...

    @overload
    async def call(
        self,
        tool_name: str,
        function: Function | None = None,
        args: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        runner: Runner | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[Any]: ...

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
        """Make one guarded call.

        Args:
            tool_name: the tool as the model names it.
            function: called with `args` as keyword arguments; by default the registered one. A plain function runs in a
                thread, a coroutine function on this loop.
            args: the arguments.
            session_id: id of the conversation; by default that of the surrounding session.
            runner: runs a plain function instead of a thread.
            options: options of this call; see `CallOptions`.

        An invalid call returns a failed result (`unknown_tool`, `invalid_input`).

        Raises:
            BaseException: control flow instead of a failure of the tool: a cancellation, an interrupt of a graph, a
                request for approval; see `errors.is_control_flow`.
        """
        if function is None:
            function = self.tools.get(tool_name).function if is_name(tool_name) else None
        if args is None:
            args = {}
        if not self.settings.enabled and function is not None:
            return await call_unguarded(tool_name, function, args, runner, self.settings.passthrough)
        session = self.sessions.get(session_id) if isinstance(session_id, str) else CURRENT.get()
        if session_id is None:
            session_id = session.session_id if session is not None else NO_SESSION
        if session is not None:
            session.inbox.call_made()  # whoever runs the model keeps the other pauses
        try:
            call, function = self._call_of(tool_name, function, args, session_id, session, options)
        except EnvelopeRejected as rejected:
            return self._reject(rejected, tool_name, session_id, session)
        if session is not None and call.recursion_depth:
            session.begin_limits()
        call.spending = session.spending if session is not None else None
        return await self._flow.run(call, function, runner=runner)

    def _call_of(
        self,
        tool_name: Any,
        function: Any,
        args: Any,
        session_id: Any,
        session: GuardSession | None,
        options: Mapping[str, Any],
    ) -> tuple[GuardedCall, Function]:
        """Build a call and its function from the caller's arguments.

        Raises:
            EnvelopeRejected: the call is invalid; the code is `unknown_tool` or `invalid_input`.
        """
        check_call(tool_name, args, session_id)
        if function is None:
            message = f"no function for {tool_name!r}; give one, or register the tool with one"
            raise EnvelopeRejected(message, UNKNOWN_TOOL)
        if not callable(function):
            raise EnvelopeRejected(f"the function of {tool_name!r} is no function, but {kind_of(function)}")
        try:
            call = self._builder.build(self.tools.get(tool_name), args, session_id, session, options)
        except EnvelopeRejected:
            raise
        except Exception as error:
            raise EnvelopeRejected(f"the call cannot be read: {text_of(error)[:200]}") from error
        return call, function

    def _reject(
        self, rejected: EnvelopeRejected, tool_name: object, session_id: object, session: GuardSession | None
    ) -> ToolResult:
        """Answer an invalid call with a failed result, and publish an event."""
        name = text_of(tool_name)[:256] or "unknown"
        who = session if session is not None else self.settings
        if self.settings.enabled:
            self.publisher.rejected(
                rejected.code,
                name,
                session_id if is_name(session_id) else NO_SESSION,
                workspace_id=who.workspace_id,
                user_id=who.user_id,
                model=who.model,
            )
            self.metrics.add(CALLS, self.metrics.tool(clean_text(name)), str(ResultStatus.ERROR), "refused")
        return rejected_call(rejected, name)

    async def execute(
        self, envelope: ToolCallEnvelope | Mapping[str, Any] | bytes | str, function: Function | None = None
    ) -> ToolResult:
        """Make the call that an envelope describes; an invalid one returns an error.

        The error is terminal: nothing was called, retried or recorded.
        """
        try:
            given = read_envelope(envelope)
        except EnvelopeRejected as rejected:
            return refused_envelope(rejected, envelope)
        options = options_of(given, self.clock.now_ms())
        return await self.call(
            given.tool_name, function, given.payload.params, session_id=given.target.session_key, **options
        )

    async def settle(
        self,
        tool_name: str,
        outcome: Literal["done", "failed"],
        output: Any = None,
        *,
        args: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        **options: Unpack[CallOptions],
    ) -> bool:
        """Settle the unknown outcome of a call: what became of a change whose call was cut off.

        Args:
            tool_name: the tool.
            outcome: `done`: repetitions get `output`; `failed`: nothing was changed, and the call may be made again.
            output: result of the call, if it is done.
            args: its arguments, if its key was computed from them.
            session_id: as of the call.
            options: as of the call: its `idempotency_key`, and what else tells calls apart (actor, tenant, scope).

        Returns:
            False if there is no such call whose outcome is unknown.

        Raises:
            EnvelopeRejected: the call is invalid.
            ValueError: there is no such outcome.
            Exception: the store cannot be reached.
        """
        if outcome not in {"done", "failed"}:
            raise ValueError(f"outcome is {outcome!r}; use 'done' or 'failed'")
        session = self.sessions.get(session_id) if isinstance(session_id, str) else CURRENT.get()
        if session_id is None:
            session_id = session.session_id if session is not None else NO_SESSION
        function = self.tools.get(tool_name).function or ChangeSettlement
        call, function = self._call_of(tool_name, function, args or {}, session_id, session, options)
        key = self._coalescer.key_for(call, function)
        return key is not None and await self._coalescer.settler.settle(call, key, ChangeSettlement(outcome, output))

    async def call_resilient(
        self,
        scenario: str,
        args: Mapping[str, Any] | None = None,
        *,
        tags: Any = (),
        max_attempts: int = 5,
        **options: Any,
    ) -> ResilientResult:
        """Call the best registered tool for a scenario, and the next best one if it fails.

        See docs/design/semantics.md#tool-quality.

        Args:
            scenario: task in words.
            args: arguments, the same for every tool.
            tags: only tools with all of these tags.
            max_attempts: largest number of tools tried.
            options: `similarity`, `rules`, and the options of `call`.
        """
        from .resilient import call_resilient  # few programs need the ranking

        return await call_resilient(self, scenario, args or {}, frozenset(tags), max_attempts, options)

    # --- sessions -------------------------------------------------------------------------------------------------

    def session(self, session_id: str | None = None, **options: Unpack[SessionOptions]) -> GuardSession:
        """Create a session: `async with guard.session(…) as session:`; its id is made up if none is given."""
        return GuardSession(self, session_id or new_id(self.clock.now_ms()), **options)

    # --- the end --------------------------------------------------------------------------------------------------

    async def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all events published so far are delivered; return False on timeout."""
        return await self.backend.flush(timeout_s)

    async def close(self) -> None:
        """Deliver buffered events, then release all resources; repeated calls do nothing."""
        if self._closed:
            return
        self._closed = True
        if self._blocking is not None:
            self._blocking.close(self._coalescer.close_connections)
        await self.backend.close()
        await self._coalescer.close_connections()
        await self.store.close()

    async def __aenter__(self) -> Self:
        if isinstance(self.store, FallbackDedupeStore):
            await self.store.circuit.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _settings_and_plugins(options: GuardOptions) -> tuple[GuardSettings, GuardPlugins]:
    """Split the options of a guard into its settings and its plugins.

    Raises:
        ConfigError: a setting is unknown or invalid.
    """
    plugins = GuardPlugins(store=options.pop("store", None), permission=options.pop("permission", None))
    settings: SettingsOptions = options
    return GuardSettings.from_env(**settings), plugins


def _after_fork() -> None:
    for guard in list(FORK_AWARE):
        guard.after_fork()


os.register_at_fork(after_in_child=_after_fork)
