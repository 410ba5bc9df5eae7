"""Session of one conversation under guard: texts, turns, calls, nudges and limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self, Unpack

from ..projections.session.announcing import announces
from ..schemas import events as ev
from ..schemas.decisions import (
    GuaranteeFields,
    ModelSwitchSuggested,
    NudgeIssued,
    NudgeWithdrawn,
    PatternDetected,
    SessionRestored,
)
from ..schemas.settings import SettingsOverrides
from ..schemas.vocabulary import InputSource, TrustState
from ..schemas.words import words_in
from ..security.redaction import redact_text
from .guarantees import LIMITS, WITHIN, ExecutionGuarantees, LimitCheck, SpendingCounter, amount, published_limits
from .nudges import NudgeInbox
from .options import CallIds, CallOptions, FailureDetails, SessionOptions, check_names
from .result import ToolResult
from .tool_threads import Function

if TYPE_CHECKING:
    from .interface import GuardInterface

CURRENT: ContextVar[GuardSession | None] = ContextVar("trustfold_session", default=None)
"""Session of calls that name no session."""

MAX_SUGGESTIONS = 50


class GuardSession:
    """Session; `async with` begins and ends it.

    Attributes:
        session_id: id of the conversation.
        model: name of the current model; sent with every event.
        turn_index: index of the current turn; None before the first.
        message_id: id of the model's message whose calls are made now; None if unknown.
        spending: counter of its limits; None without limits, which a recursive call ends.
        inbox: inbox of nudges.
        suggestions: other decisions for it: models, limits, what was restored of an earlier run; newest last.
    """

    def __init__(self, guard: GuardInterface, session_id: str, **options: Unpack[SessionOptions]) -> None:
        """Prepare a session; `async with` or `begin` publishes its start. `options`: see `SessionOptions`.

        Raises:
            TypeError: an option is unknown.
        """
        check_names("GuardSession", options, SessionOptions.__optional_keys__)
        own = guard.settings
        self.session_id = session_id
        self.model = options.get("model") or own.model
        self.model_tier = options.get("model_tier") or own.model_tier
        self.workspace_id = options.get("workspace_id") or own.workspace_id
        self.user_id = options.get("user_id") or own.user_id
        self.actor_id = options.get("actor_id") or own.actor_id
        self.agent_id = options.get("agent_id") or own.agent_id
        self.turn_index: int | None = None
        self.message_id: str | None = None
        guarantees = options.get("guarantees")
        self.spending = SpendingCounter(guarantees, guard.clock.monotonic_ms()) if guarantees is not None else None
        self.inbox = NudgeInbox(
            inject_context_hint=options.get("inject_context_hint"),
            inject_system_guidance=options.get("inject_system_guidance"),
            request_pause=options.get("request_pause"),
            notify_user=options.get("notify_user"),
            carried=self._carried,
        )
        self.suggestions: list[Any] = []
        self._guard = guard
        self._settings = options.get("settings")
        self._on_suggestion = options.get("on_suggestion")
        self._trust: dict[str, TrustState] = {}
        self._stop: Callable[[], None] | None = None
        self._token: Token[GuardSession | None] | None = None

    # --- beginning and end ----------------------------------------------------------------------------------------

    def begin(self) -> Self:
        """Publish the session's start and listen for its decisions."""
        if not self._guard.settings.enabled or self._stop is not None:
            return self
        self._stop = self._guard.backend.decisions.listen(self.session_id, self._on_decision)
        self._guard.sessions[self.session_id] = self
        self._event(ev.SessionStarted, settings=self._settings, reports_turn_ends=True, reports_deliveries=True)
        if self.spending is not None:
            limits = published_limits({name: getattr(self.spending.limits, name) for name in LIMITS})
            self._event(ev.GuaranteeOverridden, limits=limits, confirmed_by="platform")
        return self

    def end(self, reason: str | None = None) -> None:
        """Publish the session's end; its open calls and turns are closed."""
        if self._stop is None:
            return
        self._event(ev.SessionEnded, reason=redact_text(reason) if reason else None)
        self._stop()
        self._stop = None
        self._guard.sessions.pop(self.session_id, None)
        self.inbox.close()

    async def __aenter__(self) -> Self:
        self.begin()
        self._token = CURRENT.set(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._token is not None:
            CURRENT.reset(self._token)
            self._token = None
        self.end("error" if kind is not None else None)

    # --- calls ----------------------------------------------------------------------------------------------------

    async def call(
        self,
        tool_name: str,
        function: Function | None = None,
        args: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult:
        """Make a guarded call in this session; see `ToolGuard.call`."""
        return await self._guard.call(tool_name, function, args, session_id=self.session_id, **options)

    @contextmanager
    def step(self, message_id: str) -> Iterator[None]:
        """Mark the calls of one message of the model: `with session.step(message.id):`.

        They are one step: the model has seen none of their results. `message_id` of a call does the same for it alone.
        """
        before, self.message_id = self.message_id, message_id
        try:
            yield
        finally:
            self.message_id = before

    # --- what is said ---------------------------------------------------------------------------------------------

    def user_message(self, text: str = "", *, words: int | None = None) -> None:
        """Publish a user message, which ends every streak; only its length and a digest of the text are sent.

        `words`: number of its words, if the text itself is not given.
        """
        digest = self._guard.privacy.text_digest(text) if text else None
        self._event(ev.UserMessage, text_digest=digest, words=words_in(text) if text else words)

    def input_received(self, source: InputSource | str, text: str = "") -> None:
        """Publish that something other than the user spoke to the model; only a digest of the text is sent.

        Args:
            source: `report` of work in the background, another `agent`, `timer`, `hook` or `client`.
            text: what the model is told.

        Raises:
            ValueError: the source is unknown.
        """
        digest = self._guard.privacy.text_digest(text) if text else None
        self._event(ev.InputReceived, source=InputSource(source), text_digest=digest)

    def context_compacted(self) -> None:
        """Publish that the model's context was shortened: what it has read, it may have to read again."""
        self._event(ev.ContextCompacted)

    def model_text(self, text: str) -> None:
        """Publish one whole message of the model; an empty one, of calls alone, is none."""
        if not text.strip():
            return
        if self._guard.privacy.send_args:
            self._event(ev.ModelText, text=redact_text(text))
            return
        mentions = tuple(
            tool.name for tool in self._guard.tools.known() if tool.name in text and len(tool.name) <= 256
        )[:20]
        self._event(
            ev.ModelText,
            text_digest=self._guard.privacy.text_digest(text),
            announces=announces(text),
            mentions=mentions,
        )

    @contextmanager
    def turn(self, index: int | None = None) -> Iterator[int]:
        """Publish start and end of the model's turn: `with session.turn():`."""
        try:
            yield self.begin_turn(index)
        finally:
            self.end_turn()

    def begin_turn(self, index: int | None = None) -> int:
        """Publish the start of a turn, for programs that cannot use `turn`; return its index."""
        self.turn_index = index if index is not None else 0 if self.turn_index is None else self.turn_index + 1
        self._event(ev.TurnStarted)
        return self.turn_index

    def end_turn(self) -> None:
        """Publish the end of the turn."""
        self._event(ev.TurnEnded)

    def change_settings(self, settings: SettingsOverrides) -> None:
        """Replace the session's overrides."""
        self._event(ev.SessionSettingsChanged, settings=settings)

    def false_alarm(self, output_id: str, reason: str | None = None) -> None:
        """Publish that a nudge or an escalation was a false alarm."""
        self._event(ev.FeedbackFalseAlarm, output_id=output_id, reason=redact_text(reason) if reason else None)

    # --- what trustfold says --------------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether a nudge requested a pause that has not been ended."""
        return self.inbox.paused

    def nudges(self) -> AsyncIterator[NudgeIssued]:
        """Iterator of nudges as they arrive, each once, until the session ends."""
        return self.inbox.__aiter__()

    def messages(self) -> list[dict[str, str]]:
        """Return nudges as chat messages for the next request to the model, each once."""
        return self.inbox.messages()

    def _carried(self, nudge_id: str) -> None:
        self._event(ev.NudgeDelivered, nudge_id=nudge_id)

    def _on_decision(self, decision: Any) -> None:
        if isinstance(decision, NudgeIssued):
            self.inbox.deliver(decision)
            return
        if isinstance(decision, NudgeWithdrawn):
            self.inbox.withdraw(decision.nudge_id)
            return
        if isinstance(decision, PatternDetected):
            self.inbox.notify(decision)
            return
        if isinstance(decision, ModelSwitchSuggested | GuaranteeFields | SessionRestored):
            self.suggestions.append(decision)
            del self.suggestions[:-MAX_SUGGESTIONS]
            if self._on_suggestion is not None:
                self._on_suggestion(decision)

    # --- trust and limits -----------------------------------------------------------------------------------------

    def trust(self, key: str, state: TrustState | str | None) -> None:
        """Override the trust of a key (or a tool's name) in this session; None removes the override."""
        if state is None:
            self._trust.pop(key, None)
        else:
            self._trust[key] = TrustState(state)

    def trust_override(self, keys: tuple[str, ...]) -> TrustState | None:
        """Return the session's trust override of a call, the most specific key first; None without one."""
        return next((self._trust[key] for key in keys if key in self._trust), None) if self._trust else None

    def begin_limits(self) -> SpendingCounter:
        """Hold the default limits from now on, unless the session has its own; returns what is counted."""
        if self.spending is None:
            self.spending = SpendingCounter(ExecutionGuarantees(), self._guard.clock.monotonic_ms())
        return self.spending

    def override_guarantees(self, *, confirmed_by: str, **limits: float) -> None:
        """Raise the session's limits after a person's confirmation; each confirmation counts once.

        Raises:
            ConfigError: `confirmed_by` is empty, or a limit is unknown.
        """
        self.begin_limits().override(limits, confirmed_by)
        self._event(ev.GuaranteeOverridden, limits=published_limits(limits), confirmed_by=confirmed_by)

    def allow_once(self, *limits: str, confirmed_by: str) -> None:
        """Let the next operation that needs it exceed the named limits, after a person's confirmation.

        The override is used once; on use it is recorded in `spending.overrides` and published.

        Raises:
            ConfigError: `confirmed_by` is empty, or a limit is unknown.
        """
        self.begin_limits().allow_once(limits, confirmed_by)

    def check_limits(self, *, cost_usd: float = 0.0, recursive: bool = False) -> LimitCheck:
        """Check an operation other than a guarded call right before it is made; guarded calls are checked by the guard.

        Every exceeded limit is in `violations` of the result and recorded in `spending.violations`.

        Raises:
            ConfigError: the cost is invalid.
        """
        if self.spending is None:
            return WITHIN
        checked = self.spending.check(self._guard.clock.monotonic_ms(), cost_usd=cost_usd, recursive=recursive)
        if checked.overridden:
            self._event(ev.GuaranteeOverridden, **self.spending.last_override())
        return checked

    def spend(self, *, cost_usd: float = 0.0, recursive: bool = False) -> None:
        """Count the cost of an operation other than a guarded call.

        Raises:
            ConfigError: the cost is invalid.
        """
        if self.spending is not None:
            self.spending.cost_usd += amount(cost_usd)
            self.spending.recursive_calls += recursive

    # --- reporter -------------------------------------------------------------------------------------------------

    def report_failure(
        self, tool_name: str, error: str | dict[str, Any] | BaseException, **details: Unpack[FailureDetails]
    ) -> bool:
        """Report a failure without a call of its own; see `ToolGuard.report_failure`."""
        return self._guard.report_failure(tool_name, error, session_id=self.session_id, **details)

    def report_rejected(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None,
        error: str | dict[str, Any] | BaseException,
        **ids: Unpack[CallIds],
    ) -> bool:
        """Report a call that never ran; see `ToolGuard.report_rejected`."""
        return self._guard.report_rejected(tool_name, args, error, session_id=self.session_id, **ids)

    def report_success(self, tool_name: str, *, domain: str | None = None, service: str | None = None) -> bool:
        """Report a success of a tool."""
        return self._guard.report_success(tool_name, session_id=self.session_id, domain=domain, service=service)

    def _event(self, kind: type[ev.EventBase], **fields: Any) -> None:
        if not self._guard.settings.enabled:
            return
        self._guard.publisher.event(
            kind,
            self.session_id,
            workspace_id=self.workspace_id,
            user_id=self.user_id,
            agent_id=self.agent_id,
            model=self.model,
            model_tier=self.model_tier,
            turn_index=self.turn_index,
            **fields,
        )
