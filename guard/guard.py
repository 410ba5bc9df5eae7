"""The guard: wraps the tool calls of an agent's process (design 4).

guard = await ToolGuard.connect("kafka://localhost:9092", workspace_id="w1")
result = await guard.call("http_request", fetch, {"url": url}, session_id=session)
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from weakref import WeakValueDictionary

from ..schemas import commands as cmd
from ..schemas import events as ev
from ..schemas.errors import ConfigError
from ..schemas.rules import Rules
from ..schemas.tool_envelopes import ResultStatus, ToolCallEnvelope
from ..schemas.vocabulary import QualitySeverity, Severity, TrustState
from .attempts import Executor, Function, Runner
from .binding import as_bound, by_name
from .breaker import BreakerGate
from .clock import Clock, SystemClock, new_id
from .errors import EnvelopeRejected
from .failure import of_exception
from .flow import CallFlow
from .hooks import Hooks
from .idempotency.joining import Joiner
from .idempotency.memory import InMemoryDedupeStore
from .metrics import Metrics
from .permission import PermissionWrapper, is_refused, must_ask, refusal_message
from .preparing import options_of, prepare
from .privacy import Privacy
from .publisher import Publisher
from .redaction import redact_text
from .reports import context_of, error_info, severity_of
from .request import NO_SESSION, Call, check_call, read_envelope, safe_key, scopes_of, trust_keys
from .result import ToolResult
from .session import CURRENT, GuardSession
from .settings import GuardSettings
from .tools import Tool, ToolBook
from .tracing import Tracing
from .view import StateView, Trust

if TYPE_CHECKING:
    from ..schemas.tool_envelopes import ResultError
    from .backends.base import Backend
    from .backends.memory import MemoryBackend
    from .idempotency.record import DedupeStore
    from .resilient import ResilientResult


class Decision(NamedTuple):
    """What a check says about a call that nobody has made yet.

    Attributes:
        allowed: nothing refuses it; it may still have to be approved.
        ask: a person must approve it.
        code: `allowed`, `approval_required`, `blocked`, `removed` or `circuit_open`.
        message: why, in words; empty where it is allowed.
    """

    allowed: bool
    ask: bool = False
    code: str = "allowed"
    message: str = ""


ALLOWED = Decision(allowed=True)


class ToolGuard:
    """Wraps tool calls: asks, joins, retries, publishes. One per process is enough; it may serve many sessions.

    Attributes:
        settings: what holds for all calls.
        tools: what is known about tools.
        hooks: hooks of the platform.
        metrics: counters.
        sessions: sessions that have begun and not ended, by id.
        guard_id: names this guard to the fleet.
    """

    def __init__(
        self,
        backend: Backend,
        settings: GuardSettings,
        *,
        store: DedupeStore | None = None,
        permission: PermissionWrapper | Any = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Put a guard together; `in_memory`, `embedded` and `connect` are the usual ways.

        Args:
            backend: where events go and the view comes from.
            settings: what holds for all calls.
            store: keeps idempotency keys; by default this process does.
            permission: the platform's permission plugin, wrapped or plain.
            clock: for tests.
            metrics: counters that the backend counts into, too.
            draw: draws the delays before retries; for tests.
        """
        self.settings = settings
        self.backend = backend
        self.clock = clock or SystemClock()
        self.tools = ToolBook()
        self.hooks = Hooks()
        self.metrics = metrics or Metrics()
        self.privacy = Privacy(settings.digest_key, send_args=settings.send_args, send_errors=settings.send_errors)
        self.guard_id = f"guard-{new_id(self.clock.now_ms())}"
        self.sessions: WeakValueDictionary[str, GuardSession] = WeakValueDictionary()
        self.store: DedupeStore = store or InMemoryDedupeStore(clock=self.clock)
        self.publisher = Publisher(backend, settings, self.clock, self.privacy)
        tracing = Tracing(enabled=settings.tracing)
        gate = BreakerGate(backend, self.publisher, settings, self.clock, self.metrics, self.guard_id)
        self._gate = gate
        self._flow = CallFlow(
            backend,
            settings,
            self.clock,
            publisher=self.publisher,
            gate=gate,
            joiner=Joiner(self.store, settings.dedupe, self.privacy, self.clock, self.metrics),
            executor=Executor(self.clock, gate, self.hooks, self.metrics, tracing, draw),
            hooks=self.hooks,
            metrics=self.metrics,
            tracing=tracing,
            permission=None,
        )
        self.permission = permission

    # --- ways to get one ------------------------------------------------------------------------------------------

    @classmethod
    def in_memory(
        cls,
        *,
        rules: Rules | None = None,
        clock: Clock | None = None,
        store: DedupeStore | None = None,
        permission: Any = None,
        draw: Callable[[float, float], float] = random.uniform,
        **settings: Any,
    ) -> Self:
        """A guard whose folds run in this process; for tests and for agents of their own.

        `settings` are those of `GuardSettings`; the environment's hold where they are silent.

        Raises:
            ConfigError: a setting cannot work.
        """
        from .backends.memory import MemoryBackend  # only this way needs the folds

        chosen = GuardSettings.from_env(**settings)
        clock, metrics = clock or SystemClock(), Metrics()
        backend = MemoryBackend(clock, metrics, rules)
        return cls(backend, chosen, store=store, permission=permission, clock=clock, metrics=metrics, draw=draw)

    @classmethod
    async def embedded(
        cls,
        path: str,
        *,
        store: DedupeStore | None = None,
        permission: Any = None,
        wait_s: float = 10.0,
        token: str | None = None,
        **settings: Any,
    ) -> Self:
        """A guard over the durable engine of this machine, kept in the file at `path`.

        Joins the `trustfold up` that runs over the file, or starts one that ends with the guard (extra `web`).

        Raises:
            ConfigError: a setting cannot work, or no engine could be started; the message says why.
        """
        from .backends.engine import engine_over  # as in `connect`
        from .backends.http import HttpBackend

        chosen = GuardSettings.from_env(**settings)
        metrics = Metrics()
        if not chosen.enabled:
            return cls(_nowhere(metrics), chosen, store=store, permission=permission, metrics=metrics)
        engine = await asyncio.to_thread(engine_over, path, token, wait_s)
        backend = HttpBackend(engine.url, metrics, chosen.buffer_events, token=token, engine=engine)
        guard = cls(backend, chosen, store=store, permission=permission, metrics=metrics)
        await backend.start(wait_s)
        return guard

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        store: DedupeStore | None = None,
        permission: Any = None,
        wait_s: float = 10.0,
        strict: bool = False,
        topic_prefix: str | None = None,
        token: str | None = None,
        client_arguments: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Self:
        """A guard that follows Kafka (`kafka://host:port,…`) or a running `trustfold up` (`http://host:port`).

        Args:
            address: where to.
            store: keeps idempotency keys; a fleet needs a shared one.
            permission: the platform's permission plugin.
            wait_s: how long to wait for the view. After that the guard goes on without it and keeps trying.
            strict: raise instead of going on without a view.
            topic_prefix: of the topics; by default `trustfold.`, or `TRUSTFOLD_TOPIC_PREFIX`.
            token: secret that an `up` asks for; by default `TRUSTFOLD_TOKEN`.
            client_arguments: further arguments of aiokafka's clients: TLS and SASL.
            settings: those of `GuardSettings`; the environment's hold where they are silent.

        Raises:
            ConfigError: the address or a setting makes no sense; with `strict` also: nobody answers.
        """
        chosen = GuardSettings.from_env(**settings)
        metrics = Metrics()
        scheme, _, rest = address.partition("://")
        if not chosen.enabled:
            # The kill switch must work where Kafka does not.
            return cls(_nowhere(metrics), chosen, store=store, permission=permission, metrics=metrics)
        if scheme == "kafka" and rest:
            from .backends.kafka import KafkaBackend  # extra `kafka`

            backend: Backend = KafkaBackend(
                rest,
                metrics,
                chosen.buffer_events,
                topic_prefix=topic_prefix,
                client_arguments=dict(client_arguments or {}),
            )
        elif scheme in {"http", "https"} and rest:
            from .backends.http import HttpBackend  # only where it is used

            backend = HttpBackend(address, metrics, chosen.buffer_events, token=token)
        else:
            raise ConfigError(f"{address!r} is no address; use kafka://host:9092 or http://127.0.0.1:8321")
        guard = cls(backend, chosen, store=store, permission=permission, metrics=metrics)
        await backend.start(wait_s)
        if strict and not backend.connected:
            await guard.close()
            raise ConfigError(f"nobody answers at {address}; is it running, is the address right?")
        return guard

    # --- what it knows --------------------------------------------------------------------------------------------

    @property
    def view(self) -> StateView:
        """Latest state of everything away from its default."""
        return self.backend.view

    @property
    def connected(self) -> bool:
        """Whether events are delivered and the view follows."""
        return self.backend.connected

    @property
    def memory(self) -> MemoryBackend:
        """The in-memory backend, for tests.

        Raises:
            TypeError: this guard has another one.
        """
        from .backends.memory import MemoryBackend  # as in `in_memory`

        if not isinstance(self.backend, MemoryBackend):
            raise TypeError("this guard does not fold in memory")
        return self.backend

    @property
    def permission(self) -> PermissionWrapper | None:
        """The platform's permission plugin, wrapped; assign a plain one, or None for none."""
        return self._flow.permission

    @permission.setter
    def permission(self, plugin: Any) -> None:
        wrapped = plugin if plugin is None or isinstance(plugin, PermissionWrapper) else PermissionWrapper(plugin, self)
        self._flow.permission = wrapped

    def check(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        workspace_id: str | None = None,
    ) -> Decision:
        """Whether a call would be made now, from the local view alone; nothing is published. Costs microseconds."""
        if not self.settings.enabled:
            return ALLOWED
        view, settings = self.backend.view, self.settings
        session = self.sessions.get(session_id) if session_id is not None else None
        if view.untroubled and session is None:
            return ALLOWED
        workspace = workspace_id or (session or settings).workspace_id
        key = safe_key(tool_name, args or {}, self.tools.get(tool_name).service or "")
        if session is None:
            trust = view.trust(workspace, trust_keys(tool_name, key), settings.user_id)
        else:
            trust = self.trust_of(tool_name, args, session_id=session.session_id, workspace_id=workspace)
        if trust is not None and is_refused(trust):
            return Decision(self.settings.shadow, code=str(trust.state), message=refusal_message(tool_name, trust))
        scopes = scopes_of(tool_name, key) if settings.enforce_breakers else ()
        standing = self._gate.standing_at(workspace, scopes)
        if standing is not None:
            return Decision(self.settings.shadow, code="circuit_open", message=standing.message)
        if trust is not None and must_ask(trust):
            return Decision(allowed=True, ask=True, code="approval_required", message=refusal_message(tool_name, trust))
        return ALLOWED

    def trust_of(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None = None,
        *,
        session_id: str = "",
        workspace_id: str | None = None,
    ) -> Trust | None:
        """The strictest trust of a call's keys; None where it is trusted.

        Workspace and user are those of the session, else the guard's, as they are for the call itself.
        """
        who = self.sessions.get(session_id) or self.settings
        call = Call(self.tools.get(tool_name), args or {}, session_id or NO_SESSION, workspace_id or who.workspace_id)
        call.user_id = who.user_id
        return self._trust(call)

    def _trust(self, call: Call) -> Trust | None:
        session = self.sessions.get(call.session_id)
        if session is not None and (own := session.trust_override(call.trust_keys)) is not None:
            if own is TrustState.TRUSTED:
                return None
            from .overrides import session_trust  # rare

            return session_trust(call, own, self.clock.now_ms())
        view = self.backend.view
        return None if view.untroubled else view.trust(call.workspace_id, call.trust_keys, call.user_id)

    # --- calls ----------------------------------------------------------------------------------------------------

    def register(self, name: str, function: Function | None = None, **nature: Any) -> Tool:
        """Say what a tool is like; `nature` are the fields of `Tool`. With a function it can be called by name."""
        if "tags" in nature:
            nature["tags"] = frozenset(nature["tags"])
        return self.tools.add(Tool(name=name, function=function, **nature))

    def tool(self, function: Function | None = None, *, name: str | None = None, **nature: Any) -> Any:
        """Guard a function for good: `@guard.tool(read_only=True)`.

        The guarded function is called as before, with the session of the surrounding `async with guard.session(…)`. It
        returns what the function returns and raises what it raises; a call that the guard does not make raises
        `CallNotPermitted`. Positional arguments get their names from the signature.
        """
        if function is None:
            return functools.partial(self.tool, name=name, **nature)
        made = self.register(str(name or getattr(function, "__name__", "tool")), function, **nature)
        signature = inspect.signature(function)

        @functools.wraps(function)
        async def guarded(*positional: Any, **named: Any) -> Any:
            if not self.settings.enabled:
                given = function(*positional, **named)
                return await given if inspect.isawaitable(given) else given
            bound = signature.bind(*positional, **named)
            args, call_with = by_name(bound)
            target = function if call_with is None else as_bound(function, call_with)
            result = await self.call(made.name, target, args)
            return result.unwrap()

        return guarded

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
        """Make one guarded call.

        Args:
            tool_name: the tool as the model names it.
            function: makes the call, with `args` as keyword arguments; by default the registered one. A plain
                function runs in a thread, a coroutine function on this loop.
            args: the arguments.
            session_id: the conversation; by default that of the surrounding session.
            runner: runs a plain function instead of a thread.
            options: about this call alone: `call_id`, `request_id`, `idempotency_key`, `dedupe_mode`, `workspace_id`,
                `namespace`, `actor_id`, `user_id`, `tenant_id`, `agent_id`, `correlation_id`, `model`, `model_tier`,
                `recursion_depth`, `scenario`, `timeout_ms`, `deadline_ms` (milliseconds from now), `max_attempts`,
                `max_elapsed_ms`, `hints`, `trace`.

        Raises:
            EnvelopeRejected: the call makes no sense; nothing was called and nothing noted.
        """
        if function is None:
            function = self.tools.get(tool_name).function
            if function is None:
                raise EnvelopeRejected(f"no function for {tool_name!r}; give one, or register the tool with one")
        if args is None:
            args = {}
        if not self.settings.enabled:
            return await self._straight(tool_name, function, args, runner)
        session = self.sessions.get(session_id) if session_id is not None else CURRENT.get()
        if session_id is None:
            session_id = session.session_id if session is not None else NO_SESSION
        check_call(tool_name, args, session_id)
        call = prepare(
            self.tools.get(tool_name),
            args,
            session_id,
            options,
            session=session,
            settings=self.settings,
            clock=self.clock,
        )
        return await self._flow.run(
            call,
            function,
            spending=session.spending if session is not None else None,
            trust=self._trust,
            runner=runner,
        )

    async def execute(
        self, envelope: ToolCallEnvelope | Mapping[str, Any] | bytes | str, function: Function | None = None
    ) -> ToolResult:
        """Make the call that an envelope describes (seed 3 §1.1); a malformed one is answered with an error.

        The error is terminal: nothing was called, tried again or noted.
        """
        try:
            given = read_envelope(envelope)
        except EnvelopeRejected as rejected:
            return _rejected(rejected, envelope)
        options = options_of(given, self.clock.now_ms())
        return await self.call(
            given.tool_name, function, given.payload.params, session_id=given.target.session_key, **options
        )

    async def call_resilient(
        self,
        scenario: str,
        args: Mapping[str, Any] | None = None,
        *,
        tags: Any = (),
        max_attempts: int = 5,
        **options: Any,
    ) -> ResilientResult:
        """Do something with the best registered tool, and with the next best where that fails (seed 4).

        Args:
            scenario: what is to be done, in words.
            args: arguments, the same for every tool.
            tags: only tools that carry all of them.
            max_attempts: most tools tried.
            options: `similarity`, `rules`, and those of `call`.
        """
        from .resilient import call_resilient  # ranking loads what few need

        return await call_resilient(self, scenario, args or {}, frozenset(tags), max_attempts, options)

    async def _straight(
        self, tool_name: str, function: Function, args: Mapping[str, Any], runner: Runner | None
    ) -> ToolResult:
        """The kill switch: the function is called once, as it is; nothing is checked, tried again or published."""
        made = ToolResult(request_id="", tool_name=tool_name, status=ResultStatus.SUCCESS, attempts=1)
        try:
            if inspect.iscoroutinefunction(function):
                made.output = await function(**args)
            elif runner is not None:
                made.output = await runner(function, dict(args))
            else:
                made.output = await asyncio.to_thread(function, **args)
                if inspect.isawaitable(made.output):
                    made.output = await made.output
        except Exception as error:  # noqa: BLE001 - `unwrap` raises it again
            made.status, made.exception, made.error = ResultStatus.ERROR, error, _raised(error)
        return made

    # --- sessions and reports -------------------------------------------------------------------------------------

    def session(self, session_id: str | None = None, **options: Any) -> GuardSession:
        """A session; `async with guard.session(…) as session:`. `options` are those of `GuardSession`."""
        return GuardSession(self, session_id or new_id(self.clock.now_ms()), **options)

    def report_failure(
        self,
        tool_name: str,
        error: str | dict[str, Any] | BaseException,
        *,
        session_id: str | None = None,
        severity: Severity | str | None = None,
        domain: str | None = None,
        service: str | None = None,
        context: dict[str, Any] | None = None,
        recoverable: bool = True,
    ) -> None:
        """Report a failure without a call of its own (seed 1, Cross-Plugin Failure Reporting API).

        Raises:
            ValueError: there is no such severity.
        """
        fields = {"error": error_info(error, self.privacy), "severity": severity_of(severity)}
        if (shown := context_of(context)) is not None:
            fields["context"] = shown  # type: ignore[assignment]
        self._report(
            ev.FailureReported, tool_name, session_id, domain=domain, service=service, recoverable=recoverable, **fields
        )

    def report_success(
        self, tool_name: str, *, session_id: str | None = None, domain: str | None = None, service: str | None = None
    ) -> None:
        """Report that a tool worked, so that it can recover."""
        self._report(ev.SuccessReported, tool_name, session_id, domain=domain, service=service)

    def _report(self, kind: type[ev.EventBase], tool_name: str, session_id: str | None, **fields: Any) -> None:
        if not self.settings.enabled:
            return
        session = CURRENT.get()
        chosen = session_id or (session.session_id if session is not None else NO_SESSION)
        check_call(tool_name, {}, chosen)
        tool = self.tools.get(tool_name)
        fields["service"] = fields["service"] or tool.service
        self.publisher.event(kind, chosen, tool_name=tool_name, plugin_name=tool.plugin_name, **fields)

    def mark_tool_failure(
        self, tool_id: str, scenario: str, error_message: str = "", severity: QualitySeverity | str = "medium"
    ) -> None:
        """Mark a tool as having failed at something (seed 4); it ranks lower at such things from now on.

        That is an operator's command: on Kafka it needs the right to write `commands`. Calls that fail in a resilient
        call count by themselves and must not be marked, too.

        Raises:
            ValueError: there is no such severity.
        """
        self.order(
            cmd.QualityMark,
            tool=tool_id,
            severity=QualitySeverity(severity),
            scenario=redact_text(scenario)[:500] or None,
            error_message=redact_text(error_message)[:500] or None if self.settings.send_errors else None,
        )

    def order(self, kind: type[cmd.CommandBase], **fields: Any) -> None:
        """Give an operator's command, e.g. `guard.order(TrustReset, key="bash")`; needs an operator's rights."""
        if not self.settings.enabled:
            return
        now = self.clock.now_ms()
        command = kind(
            schema_version="1.0",
            id=new_id(now),
            time=datetime.fromtimestamp(now / 1000, UTC),
            **{"workspace_id": self.settings.workspace_id, "issued_by": self.guard_id, **fields},
        )
        self.publisher.send(command)

    def permission_hooks(self) -> dict[str, Callable[..., None]]:
        """Hooks for a permission plugin that tells what it decided (option B of the seed): `on_resolved`."""
        return {"on_resolved": self.on_permission_resolved}

    def on_permission_resolved(
        self,
        tool_name: str,
        request_id: str,
        granted: bool,  # noqa: FBT001 - the seed's signature
        method: str,
        session_id: str | None = None,
    ) -> None:
        """Publish that a request for permission was answered."""
        if not self.settings.enabled:
            return
        session = CURRENT.get()
        chosen = session_id or (session.session_id if session is not None else NO_SESSION)
        fields = {"call_id": request_id, "tool_name": tool_name, "granted": granted, "method": method or None}
        self.publisher.event(ev.PermissionResolved, chosen, **fields)

    # --- the end --------------------------------------------------------------------------------------------------

    async def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything published is delivered; False when that takes longer."""
        return await self.backend.flush(timeout_s)

    async def close(self) -> None:
        """Deliver what can be delivered, and let go of everything."""
        await self.backend.close()
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _rejected(rejected: EnvelopeRejected, envelope: Any) -> ToolResult:
    from ..schemas.tool_envelopes import ResultError  # rare

    shown = envelope if isinstance(envelope, Mapping) else {}
    error = ResultError(code="validation_error", message=str(rejected), retriable=False, terminal=True)
    return ToolResult(
        request_id=str(shown.get("requestId", "")),
        tool_name=str(shown.get("toolName", "")),
        status=ResultStatus.ERROR,
        error=error,
        exception=rejected,
    )


def _raised(error: Exception) -> ResultError:
    from ..schemas.tool_envelopes import ResultError  # only for the kill switch

    failure = of_exception(error)
    return ResultError(
        code=failure.code, message=failure.message, retriable=failure.retriable, terminal=not failure.retriable
    )


def _nowhere(metrics: Metrics) -> Backend:
    """A backend for a guard that is switched off."""
    from .backends.memory import MemoryBackend  # rare

    return MemoryBackend(SystemClock(), metrics)
