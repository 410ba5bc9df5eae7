"""Settings of a guard; tools and calls may override some of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any, Self, TypedDict, Unpack, get_args
from zlib import crc32

from ..errors import ConfigError
from ..rules.calls import CallRules, Family
from ..schemas.outcomes import DEFAULT_WORKSPACE
from ..schemas.tool_envelopes import DedupeMode
from .errors import Passthrough

CONFLICTS = ("reject", "independent")
RULES = "TRUSTFOLD_RULES"
STORE_DOWN = ("wait", "refuse", "local")
UNATTENDED = ("allow", "deny")
ENFORCED_TOOLS = ("read_only", "all")
SCOPES = ("session", "global")


def check_switches(options: Any) -> None:
    """Check the fields of a dataclass that are annotated as `bool`, or `bool | None`."""
    for one in fields(options):
        if one.type in _SWITCHES and type(value := getattr(options, one.name)) not in _SWITCHES[one.type]:
            raise ConfigError(f"{one.name} is {value!r}; use True or False, without quotation marks")


_SWITCHES: dict[Any, tuple[type, ...]] = {"bool": (bool,), "bool | None": (bool, NoneType)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Number and delays of retries (docs/design/guard.md#retries).

    Attributes:
        max_attempts: number of attempts, including the first.
        base_ms: upper bound of the first delay in milliseconds; it doubles for each further one. Delays are drawn from
            0 to the bound (full jitter), so that callers that failed together do not retry together.
        max_delay_ms: largest upper bound of a delay, milliseconds.
        max_elapsed_ms: milliseconds after the start within which a further attempt may begin.
    """

    max_attempts: int = 4
    base_ms: float = 200.0
    max_delay_ms: float = 4000.0
    max_elapsed_ms: float = 30_000.0

    def __post_init__(self) -> None:
        """Validate the policy.

        Raises:
            ConfigError: naming the field.
        """
        if self.max_attempts < 1:
            raise ConfigError(f"max_attempts is {self.max_attempts}; the first attempt counts, so use at least 1")
        for name in ("base_ms", "max_delay_ms", "max_elapsed_ms"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use milliseconds, at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupePolicy:
    """Coalescing of calls with the same idempotency key (docs/design/guard.md#idempotency).

    Attributes:
        mode: `enforced` waits for the running call, `bestEffort` fails fast, `disabled` coalesces nothing.
        derive_keys: compute a key if neither the caller nor a hook gives one and the tool allows coalescing.
        scope: calls that may share a key: those of one `session`, or `global`.
        conflict: same key, other parameters: `reject` the call, or treat it as an `independent` one.
        on_store_down: what becomes of a change while a shared store cannot be reached: it must `wait` (up to its
            deadline or 30 s) and is refused then; it is refused after a second (`refuse`); or it is made with the keys
            of this process alone (`local`), although another process may make it as well. All other calls are made.
        done_ms: milliseconds that a result is kept.
        failed_ms: milliseconds that a terminal error is kept; retriable errors are never kept.
        lease_ms: milliseconds that a running call holds its key without an extension; it extends it three times as
            often.
    """

    mode: DedupeMode = DedupeMode.ENFORCED
    derive_keys: bool = True
    scope: str = "session"
    conflict: str = "reject"
    on_store_down: str = "wait"
    done_ms: int = 86_400_000
    failed_ms: int = 300_000
    lease_ms: int = 120_000

    def __post_init__(self) -> None:
        """Validate the policy.

        Raises:
            ConfigError: naming the field.
        """
        check_switches(self)
        if self.scope not in SCOPES:
            raise ConfigError(f"scope is {self.scope!r}; use {' or '.join(SCOPES)}")
        if self.conflict not in CONFLICTS:
            raise ConfigError(f"conflict is {self.conflict!r}; use {' or '.join(CONFLICTS)}")
        if self.on_store_down not in STORE_DOWN:
            raise ConfigError(f"on_store_down is {self.on_store_down!r}; use {', '.join(STORE_DOWN)}")
        for name in ("done_ms", "failed_ms", "lease_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use milliseconds, at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """Settings of a guard.

    Attributes:
        enabled: False is the kill switch: functions are called unguarded, nothing is checked or published.
        shadow: everything is computed and published, nothing is enforced.
        enforced_share: share of sessions, 0 to 1, in which something is enforced; the others are in shadow mode. Which
            they are follows from their ids, and grows with the share.
        enforced_tools: `read_only`: only tools registered as read-only are enforced, the others are in shadow mode, as
            a first step of a rollout; `all`.
        enforce_breakers: False lets calls through open circuits; all else is unchanged.
        workspace_id: workspace of the tools.
        namespace: namespace of the tools, part of computed idempotency keys.
        actor_id: default of whom calls are made for.
        user_id: user of the agent.
        tenant_id: tenant, for the platform's own accounting.
        agent_id: id of the agent in its session.
        model: name of the calling model.
        model_tier: class of the model; recursive calls have a circuit per tier.
        retry: number and delays of retries.
        dedupe: coalescing of calls with the same key.
        families: tool name or glob → family, as `tools.families` of the workers' rules; by default those of the file
            that `TRUSTFOLD_RULES` names.
        calls: rules of dangerous calls, as `calls` of the workers' rules; by default those of the same file.
        failures: rules for failures, as `tools.failures` of the workers' rules; by default those of the same file.
        passthrough: further control-flow exceptions that are not failures: classes, or `package.Class` as text.
        unattended: answer for a call that needs approval where nobody can be asked: `allow` or `deny`.
        digest_key: secret of the deployment; keys the digests of arguments.
        send_args: publish arguments and texts, redacted, instead of digests.
        send_errors: publish error messages, redacted, instead of digests.
        buffer_events: number of undelivered events kept; beyond it the oldest are dropped and counted.
        probe_wait_ms: milliseconds that a call waits for the lease to probe a half-open circuit.
        tracing: create OpenTelemetry spans (extra `otel`).
    """

    enabled: bool = True
    shadow: bool = False
    enforced_share: float = 1.0
    enforced_tools: str = "all"
    enforce_breakers: bool = True
    workspace_id: str = DEFAULT_WORKSPACE
    namespace: str = "tools"
    actor_id: str = "agent"
    user_id: str | None = None
    tenant_id: str | None = None
    agent_id: str | None = None
    model: str | None = None
    model_tier: str | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    dedupe: DedupePolicy = field(default_factory=DedupePolicy)
    families: Mapping[str, str] = field(default_factory=dict)
    calls: CallRules = field(default_factory=CallRules)
    failures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    passthrough: Passthrough = ()
    unattended: str = "allow"
    digest_key: bytes = field(default=b"", repr=False)
    send_args: bool = False
    send_errors: bool = False
    buffer_events: int = 10_000
    probe_wait_ms: float = 2000.0
    tracing: bool = False

    def __post_init__(self) -> None:
        """Validate the settings.

        Raises:
            ConfigError: a setting is invalid; the message names it.
        """
        check_switches(self)
        if self.unattended not in UNATTENDED:
            raise ConfigError(f"unattended is {self.unattended!r}; use {' or '.join(UNATTENDED)}")
        if not 0 <= self.enforced_share <= 1:
            raise ConfigError(f"enforced_share is {self.enforced_share}; use 0 to 1")
        if self.enforced_tools not in ENFORCED_TOOLS:
            raise ConfigError(f"enforced_tools is {self.enforced_tools!r}; use {' or '.join(ENFORCED_TOOLS)}")
        if self.buffer_events < 1:
            raise ConfigError(f"buffer_events is {self.buffer_events}; use at least 1")
        for pattern, family in self.families.items():
            if family not in get_args(Family):
                raise ConfigError(f"families: {pattern!r} is {family!r}; use {', '.join(get_args(Family))}")
        if not self.workspace_id:
            raise ConfigError("workspace_id is empty; leave it out for the default workspace")

    def observes(self, session_id: str, *, shadow: bool | None, read_only: bool | None) -> bool:
        """Whether calls of a tool, with its own `shadow` and nature, are only observed in a session."""
        if shadow is not None:
            return shadow
        if self.enforced_tools == "read_only" and not read_only:
            return True
        place = crc32(session_id.encode(errors="replace")) / 2**32
        return self.shadow or place >= self.enforced_share

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Unpack[SettingsOptions]) -> Self:
        """Create settings from `TRUSTFOLD_*` variables; `overrides` win over the environment, except the kill switch.

        Raises:
            ConfigError: a variable does not parse, or an override is unknown or invalid.
        """
        environ = os.environ if environ is None else environ
        known = {one.name for one in fields(cls)}
        if unknown := sorted(overrides.keys() - known):
            raise ConfigError(f"{unknown[0]!r} is no setting of the guard; there are {', '.join(sorted(known))}")
        values: dict[str, Any] = {}
        for variable, name, parse in _VARIABLES:
            if variable == RULES and (overrides.get(name) is not None or values.get("enabled") is False):
                continue  # the file is not needed here, so a fault in it must not raise
            if text := environ.get(variable):
                try:
                    values[name] = parse(text)
                except (ValueError, ConfigError) as error:
                    shown = "***" if parse is str.encode else repr(text)
                    raise ConfigError(f"{variable} is {shown}: {error}") from error
        killed = values.get("enabled") is False
        derive = values.pop("derive_keys", None)
        values |= {name: value for name, value in overrides.items() if value is not None}
        if derive is not None and "dedupe" not in overrides:
            values["dedupe"] = DedupePolicy(derive_keys=derive)
        if killed:
            values["enabled"] = False
        return cls(**values)


class SettingsOptions(TypedDict, total=False):
    """Fields of `GuardSettings` as keyword arguments; what is left out or None comes from the environment."""

    enabled: bool | None
    shadow: bool | None
    enforced_share: float | None
    enforced_tools: str | None
    enforce_breakers: bool | None
    workspace_id: str | None
    namespace: str | None
    actor_id: str | None
    user_id: str | None
    tenant_id: str | None
    agent_id: str | None
    model: str | None
    model_tier: str | None
    retry: RetryPolicy | None
    dedupe: DedupePolicy | None
    families: Mapping[str, str] | None
    calls: CallRules | None
    failures: Mapping[str, Mapping[str, str]] | None
    passthrough: Passthrough | None
    unattended: str | None
    digest_key: bytes | None
    send_args: bool | None
    send_errors: bool | None
    buffer_events: int | None
    probe_wait_ms: float | None
    tracing: bool | None


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _WORDS:
        raise ValueError("expected true or false")
    return _WORDS[word]


def _families_in(file: str) -> Mapping[str, str]:
    from ..config import load_rules  # few deployments have a rules file

    return load_rules(file).tools.families


def _calls_in(file: str) -> CallRules:
    from ..config import load_rules

    return load_rules(file).calls


def _failures_in(file: str) -> Mapping[str, Mapping[str, str]]:
    from ..config import load_rules

    return load_rules(file).tools.failures


_WORDS = {"1": True, "true": True, "yes": True, "on": True, "enforce": True} | dict.fromkeys(
    ("0", "false", "no", "off"), False
)


_VARIABLES: tuple[tuple[str, str, Any], ...] = (
    ("TRUSTFOLD_ENABLED", "enabled", _boolean),
    ("TRUSTFOLD_SHADOW", "shadow", _boolean),
    ("TRUSTFOLD_ENFORCED_SHARE", "enforced_share", float),
    ("TRUSTFOLD_ENFORCED_TOOLS", "enforced_tools", str),
    ("TRUSTFOLD_OPEN_MODE", "enforce_breakers", _boolean),
    ("TRUSTFOLD_DERIVE_IDEMPOTENCY", "derive_keys", _boolean),
    ("TRUSTFOLD_WORKSPACE", "workspace_id", str),
    ("TRUSTFOLD_DIGEST_KEY", "digest_key", str.encode),
    ("TRUSTFOLD_SEND_ARGS", "send_args", _boolean),
    ("TRUSTFOLD_SEND_ERRORS", "send_errors", _boolean),
    ("TRUSTFOLD_BUFFER_EVENTS", "buffer_events", int),
    ("TRUSTFOLD_TRACING", "tracing", _boolean),
    (RULES, "families", _families_in),
    (RULES, "calls", _calls_in),
    (RULES, "failures", _failures_in),
)

ENVIRONMENT: tuple[str, ...] = tuple(dict.fromkeys(variable for variable, *_ in _VARIABLES))
"""Names of the variables that `GuardSettings.from_env` reads."""
