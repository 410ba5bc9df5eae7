"""One guarded call, and its construction from a caller's arguments or an envelope."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import msgspec

from ..projections.calls import attempt
from ..projections.calls.danger import NO_DANGER, CallDanger
from ..projections.calls.keys import (
    NO_FAMILIES,
    CallKey,
    call_key,
    command_keys,
    given_key,
    read_command,
    runs,
    tool_key,
)
from ..projections.calls.tool_class import class_by_args, class_by_name
from ..rules.calls import CallRules
from ..schemas.events import ToolCallStarted
from ..schemas.tool_envelopes import (
    CallControl,
    CallHints,
    CallPayload,
    CallTarget,
    CallTrace,
    CallTransport,
    DedupeMode,
    ResultStatus,
    ToolCallEnvelope,
)
from ..schemas.vocabulary import ToolClass
from .errors import INVALID_INPUT, UNKNOWN_TOOL, EnvelopeRejected
from .failure import RanProgram
from .json_view import clean_text, json_form, kind_of, sent_form, text_of
from .privacy import is_private_key_of
from .result import ToolResult
from .tools import ToolRegistration

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from .guarantees import GracefulDegradationPlan, SpendingCounter
    from .idempotency.record import DedupeRecord
    from .tool_threads import FunctionOutcome

CONTRACT_VERSION: Literal["1.1"] = "1.1"

NO_SESSION = "no-session"  # Session id of calls made outside of any session


SHIPPED = CallRules()


class CallNotes(msgspec.Struct, eq=False):
    """Values that a step of a guarded call leaves for later steps."""

    key_fingerprint: str | None = None  # start of its idempotency key's digest; None: it runs alone
    traceparent: str | None = None  # W3C trace context of its span, else of its envelope; None: neither has a valid one
    began: bool = False  # its tool was called
    cut_off: bool = False  # its last failure does not say whether a change was made
    refused: bool = False  # the guard refused it, and has published that
    plan: GracefulDegradationPlan | None = None  # how to end well, if a limit of the session refused it
    reserved_usd: float | None = None  # money of the session that is reserved for it; None: nothing was checked
    approval: dict[str, Any] | None = None  # whether it needed an approval, and what became of that
    approvals: tuple[str, ...] = ()  # ids of an operator's approvals that it uses
    claimed: list[DedupeRecord] = []  # records of approvals that are claimed for it and not used yet
    shadow: list[str] = []  # codes of refusals that were not enforced


class GuardedCall(msgspec.Struct, eq=False):
    """One call; its key and the values derived from its arguments are computed at first use."""

    tool: ToolRegistration  # registration of the tool
    args: dict[str, Any]  # its arguments; never changed
    session_id: str  # id of the conversation
    workspace_id: str  # workspace of the tool
    _key: CallKey | None = None
    call_id: str = ""  # pairs its events; the model's id if it gave one
    message_id: str | None = None  # id of the model's message that made it; None: unknown
    request_id: str = ""  # unique id of the request
    namespace: str = ""
    actor_id: str = ""
    started_ms: int = 0  # time of the request, milliseconds since the epoch
    began_ms: float = 0.0  # the same on the monotonic clock, milliseconds
    deadline_ms: float | None = None  # deadline on the monotonic clock, milliseconds; None: none
    cost_usd: float | None = None  # expected cost in US dollars; None: as registered for its tool
    approved: bool | None = None  # a person's answer to the approval request; None: nobody was asked
    given_key: str | None = None
    dedupe_mode: DedupeMode | None = None
    max_attempts: int | None = None
    max_elapsed_ms: float | None = None
    hints: CallHints | None = None
    trace: CallTrace | None = None
    user_id: str | None = None
    tenant_id: str | None = None
    agent_id: str | None = None
    correlation_id: str | None = None
    model: str | None = None
    model_tier: str | None = None
    recursion_depth: int = 0
    turn_index: int | None = None
    scenario: str | None = None
    spending: SpendingCounter | None = None  # what its session has spent; None: it has no limits
    notes: CallNotes = msgspec.field(default_factory=CallNotes)
    settled_scopes: list[str] = []
    shadow: bool = False
    scope: str | None = None  # `global` if it may equal another session's call; None: as the tool or the guard is set
    receives_key: bool = False  # the tool gets the idempotency key, so it can detect repetitions
    running: Future[FunctionOutcome] | None = None  # thread of its latest attempt, if a plain function runs in it
    ended: ToolResult | None = None  # its end, set once the tool has run for the last time
    # done when its result, a generator, has ended; None for other results
    stream: asyncio.Future[ToolResult] | None = None
    families: Mapping[str, str] = NO_FAMILIES  # configured families of tools
    rules: CallRules = SHIPPED  # rules of dangerous calls
    failures: Mapping[str, Mapping[str, str]] = {}  # rules for failures, by tool or command
    _danger: CallDanger | None = None
    _form: tuple[dict[str, Any], bytes] | None = None
    _program: RanProgram | None = None
    _sent: dict[str, Any] | None = None
    _trust_keys: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"<call of {self.tool.name!r}>"  # no arguments: they may be secret

    @property
    def name(self) -> str:
        """Name of the tool."""
        return self.tool.name

    @property
    def key(self) -> CallKey:
        """Failure key of the call; the tool's own key if it would contain a secret."""
        if self._key is None:
            key = safe_key(self.tool.name, self.sent_args, self.tool.service or "", self.families)
            self._key = attempt.keyed(key, self.danger)
        return self._key

    def use_key(self, failure_key: str) -> None:
        """Take the failure key that its publisher gives in place of arguments."""
        self._key = given_key(self.tool.name, failure_key, self.key)
        if self.danger.kind is None and (kind := attempt.danger_of_key(failure_key)) is not None:
            self._danger = CallDanger(kind, attempt.HARMS[kind])

    @property
    def danger(self) -> CallDanger:
        """Danger of the call by the rules."""
        if self._danger is None:
            name = self.tool.name
            kind = runs(name, self.args, self.families)
            if kind == "shell":
                args = self.sent_args
                line = read_command(name, args).line
                self._danger = attempt.danger_in(name, args, kind, line, self.rules)
            elif self.args:
                self._danger = attempt.danger_in(name, self.plain_args, kind, None, self.rules)
            else:
                self._danger = NO_DANGER
        return self._danger

    @property
    def plain_args(self) -> dict[str, Any]:
        """Arguments as JSON data, for everything but the tool itself."""
        return self._json_form()[0]

    @property
    def sent_args(self) -> dict[str, Any]:
        """Arguments as a worker reads them if they are published; key and class are derived from them in any case."""
        if self._sent is None:
            self._sent = sent_form(self.args, self._json_form())
        return self._sent

    @property
    def canonical_args(self) -> bytes:
        """Arguments as JSON with sorted names, for digests."""
        return self._json_form()[1]

    def _json_form(self) -> tuple[dict[str, Any], bytes]:
        if self._form is None:
            self._form = json_form(self.args)
        return self._form

    @property
    def trust_keys(self) -> tuple[str, ...]:
        """Trust keys, of which the strictest decides: the target's, the tool's, the service's.

        Those of a shell's line are the keys of all the commands that it runs.
        """
        if self._trust_keys is None:
            name, key = self.tool.name, self.key
            keys = trust_keys(name, key)
            if not key.service and runs(name, self.args, self.families) == "shell":
                keys = (*dict.fromkeys((keys[0], *command_keys(name, self.sent_args), *keys[1:])),)
            self._trust_keys = keys
        return self._trust_keys

    @property
    def scopes(self) -> list[str]:
        """Circuits of the call: the tool's, its service's, and its model tier's if it is recursive."""
        scopes = scopes_of(self.tool.name, self.key)
        if self.recursion_depth and self.model_tier:
            scopes.append(f"tier:{self.model_tier}")
        return scopes

    @property
    def tool_class(self) -> ToolClass:
        """Tool class guessed from the arguments; used for behaviour only."""
        name = self.tool.name
        if runs(name, self.sent_args, self.families) == "shell":
            return read_command(name, self.sent_args).line.tool_class
        named = class_by_name(name)
        return class_by_args(self.sent_args) if named is ToolClass.UNKNOWN and self.args else named

    @property
    def program(self) -> RanProgram:
        """Kind of program it runs, and whether the shipped rules call it dangerous; risky programs do not count."""
        if self._program is None:
            self._program = self._read_program()
        return self._program

    def _read_program(self) -> RanProgram:
        name, args = self.tool.name, self.sent_args
        kind, of_server = runs(name, args, self.families), self.key.kind == "mcp"
        command, suspect = "", False
        if kind == "shell":
            line = read_command(name, args).line
            command, suspect = line.word, line.suspect
        failures = self.failures.get(command, self.failures.get(name, {})) if self.failures else {}
        return RanProgram(kind, command, self.danger.blocks, suspect, of_server, self.tool.answers, failures)

    @property
    def may_repeat(self) -> bool:
        """Whether it may be repeated: its tool or caller declares it, or the tool gets the idempotency key."""
        if self.hints is not None and self.hints.safety_critical:
            return False
        if self.hints is not None and self.hints.expected_retry_safe is not None:
            return self.hints.expected_retry_safe
        return self.tool.may_repeat or self.receives_key

    def result(self, status: ResultStatus, **fields: Any) -> ToolResult:
        """Return a result of this call; `fields` are further ones of `ToolResult`."""
        return ToolResult(request_id=self.request_id, tool_name=self.tool.name, status=status, **fields)

    def envelope(self) -> ToolCallEnvelope:
        """Return the call as an envelope (docs/design/guard.md#envelopes), for hooks."""
        return ToolCallEnvelope(
            contract_version=CONTRACT_VERSION,
            request_id=self.request_id,
            tool_name=self.tool.name,
            tool_namespace=self.namespace,
            tool_call_id=self.call_id,
            target=CallTarget(
                session_key=self.session_id,
                actor_id=self.actor_id,
                agent_id=self.agent_id,
                workspace_id=self.workspace_id,
                correlation_id=self.correlation_id,
                tenant_id=self.tenant_id,
            ),
            payload=CallPayload(params=self.args, idempotency_key=self.given_key, call_hints=self.hints),
            transport=CallTransport(dedupe_mode=self.dedupe_mode),
            control=CallControl(),
            trace=self.trace or CallTrace(),
        )


_own_key = lru_cache(maxsize=4096)(tool_key)


def safe_key(
    tool_name: str, args: Mapping[str, Any], service: str, families: Mapping[str, str] = NO_FAMILIES
) -> CallKey:
    """Return the key of a call; the tool's own key if it would contain a secret."""
    key = call_key(tool_name, args, service, families=families)
    fine = key.fine
    return key._replace(fine=_own_key(tool_name)) if fine != tool_name and is_private_key_of(fine) else key


def trust_keys(tool_name: str, key: CallKey) -> tuple[str, ...]:
    """Return trust keys, of which the strictest decides: the call's target's, the tool's, the service's."""
    own = _own_key(tool_name)
    if key.service:
        return key.fine, own, f"service:{key.service}"
    return (own,) if key.fine == own else (key.fine, own)


def scopes_of(tool_name: str, key: CallKey) -> list[str]:
    """Return the circuits of a call that is not recursive."""
    return [f"tool:{tool_name}", f"service:{key.service}"] if key.service else [f"tool:{tool_name}"]


def recorded_call(
    event: ToolCallStarted,
    args: Mapping[str, Any],
    workspace_id: str,
    user_id: str | None,
    families: Mapping[str, str] = NO_FAMILIES,
    rules: CallRules = SHIPPED,
) -> GuardedCall:
    """Rebuild a call from its started event, with its keys and circuits; private arguments by their failure key."""
    call = GuardedCall(
        ToolRegistration(name=event.tool_name, service=event.service), named(args), event.session_id, workspace_id
    )
    call.families, call.rules = families, rules
    if event.failure_key:
        call.use_key(event.failure_key)
    call.call_id = event.call_id
    call.user_id = user_id
    call.model_tier = event.model_tier
    call.recursion_depth = event.recursion_depth or 0
    return call


def read_envelope(given: ToolCallEnvelope | Mapping[str, Any] | bytes | str) -> ToolCallEnvelope:
    """Return an envelope from JSON, from its parsed form, or unchanged."""
    try:
        if isinstance(given, bytes | str):
            return msgspec.json.decode(given, type=ToolCallEnvelope)
        if not isinstance(given, ToolCallEnvelope):
            return msgspec.convert(given, ToolCallEnvelope)
        # Envelopes built in code are validated, too, as msgspec does not validate assignments; their parameters may be
        # any objects.
        bare = msgspec.structs.replace(given, payload=msgspec.structs.replace(given.payload, params={}))
        msgspec.convert(msgspec.to_builtins(bare), ToolCallEnvelope)
    except Exception as error:
        raise EnvelopeRejected(f"no valid envelope of version {CONTRACT_VERSION}: {text_of(error)}") from error
    if not isinstance(given.payload.params, dict):
        raise EnvelopeRejected("payload.params must be an object of named arguments")
    return given


def is_name(value: object) -> TypeGuard[str]:
    """Whether a value is a valid id or name for events."""
    if type(value) is not str or not 0 < len(value) <= 256 or "\x1f" in value or "\x00" in value:
        return False
    return clean_text(value) == value  # lone surrogates cannot be told apart once they are written


def check_call(tool_name: object, args: object, session_id: object) -> None:
    """Validate the arguments of a call."""
    for what, value, code in (("tool_name", tool_name, UNKNOWN_TOOL), ("session_id", session_id, INVALID_INPUT)):
        if not is_name(value):
            message = f"{what} must be a name of 1 to 256 characters, not {text_of(value)[:40]!r}"
            raise EnvelopeRejected(message, code)
    if not issubclass(type(args), Mapping):
        raise EnvelopeRejected(f"args must be an object of named arguments, not {kind_of(args)}")


def named(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as a plain dictionary, whatever class they are of."""
    return args if issubclass(type(args), dict) else dict(args)  # type: ignore[return-value]
