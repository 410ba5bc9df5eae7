"""Settings of a guard: what holds for all of its calls unless a tool or a call says otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, get_args

from ..errors import ConfigError
from ..rules.calls import Family
from ..schemas.outcomes import DEFAULT_WORKSPACE
from ..schemas.tool_envelopes import DedupeMode
from .control_flow import Passthrough

CONFLICTS = ("reject", "independent")
UNATTENDED = ("allow", "deny")
SCOPES = ("session", "global")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how soon a call is tried again (docs/design/guard.md#retries).

    Attributes:
        max_attempts: attempts, the first one included.
        base_ms: upper bound of the first delay; each further one doubles it. Delays are drawn from 0 to the bound
            (full jitter), so that callers that failed together do not come back together.
        max_delay_ms: largest upper bound of a delay.
        max_elapsed_ms: milliseconds after the start in which a further attempt may begin.
    """

    max_attempts: int = 4
    base_ms: float = 200.0
    max_delay_ms: float = 4000.0
    max_elapsed_ms: float = 30_000.0

    def __post_init__(self) -> None:
        """Refuse policies that cannot be followed.

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
    """How calls with the same idempotency key are joined (docs/design/guard.md#idempotency).

    Attributes:
        mode: `enforced` waits for the twin that is running, `bestEffort` fails fast, `disabled` joins nothing.
        derive_keys: compute a key where neither the caller nor a hook gives one and the tool's calls may be joined.
        scope: which calls may be the same: those of one `session`, or `global`.
        conflict: same key, other parameters: `reject` the call, or treat it as an `independent` one.
        done_ms: how long a result is kept.
        failed_ms: how long a terminal error is kept; errors that might pass are never kept.
        lease_ms: how long a running call holds its key without a sign of life; it gives one three times as often.
    """

    mode: DedupeMode = DedupeMode.ENFORCED
    derive_keys: bool = True
    scope: str = "session"
    conflict: str = "reject"
    done_ms: int = 86_400_000
    failed_ms: int = 300_000
    lease_ms: int = 120_000

    def __post_init__(self) -> None:
        """Refuse what is no policy.

        Raises:
            ConfigError: naming the field.
        """
        if self.scope not in SCOPES:
            raise ConfigError(f"scope is {self.scope!r}; use {' or '.join(SCOPES)}")
        if self.conflict not in CONFLICTS:
            raise ConfigError(f"conflict is {self.conflict!r}; use {' or '.join(CONFLICTS)}")
        for name in ("done_ms", "failed_ms", "lease_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use milliseconds, at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """How a guard works.

    Attributes:
        enabled: False is the kill switch: calls go straight to their functions, nothing is checked or published.
        shadow: everything is computed and published, nothing is enforced.
        enforce_breakers: False lets calls through open circuits; the rest stays as it is.
        workspace_id: where the tools live.
        namespace: of the tools, part of computed idempotency keys.
        actor_id: on whose behalf calls are made where they do not say.
        user_id: who the agent works for.
        tenant_id: for the platform's own accounting.
        agent_id: which agent this is.
        model: the model that is calling.
        model_tier: its class; recursive calls have a circuit per tier.
        retry: how often and how soon a call is tried again.
        dedupe: how calls with the same key are joined.
        families: tool name or glob → family, as `tools.families` of the workers' rules; by default those of the file
            that `TRUSTFOLD_RULES` names.
        passthrough: further exceptions that steer the program and are no failures: classes, or `package.Class` as text.
        unattended: what becomes of a call that needs approval where there is nobody to ask: `allow` or `deny`.
        digest_key: secret of the deployment; digests of arguments are keyed with it.
        send_args: send arguments and texts, redacted, instead of digests.
        send_errors: send error messages, redacted, instead of digests.
        buffer_events: events kept while they cannot be delivered; beyond them the oldest are dropped and counted.
        probe_wait_ms: how long a call waits for the fleet's leave to probe a half-open circuit.
        tracing: make OpenTelemetry spans (extra `otel`).
    """

    enabled: bool = True
    shadow: bool = False
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
    passthrough: Passthrough = ()
    unattended: str = "allow"
    digest_key: bytes = field(default=b"", repr=False)
    send_args: bool = False
    send_errors: bool = False
    buffer_events: int = 10_000
    probe_wait_ms: float = 2000.0
    tracing: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ConfigError: naming the setting.
        """
        if self.unattended not in UNATTENDED:
            raise ConfigError(f"unattended is {self.unattended!r}; use {' or '.join(UNATTENDED)}")
        if self.buffer_events < 1:
            raise ConfigError(f"buffer_events is {self.buffer_events}; use at least 1")
        for pattern, family in self.families.items():
            if family not in get_args(Family):
                raise ConfigError(f"families: {pattern!r} is {family!r}; use {', '.join(get_args(Family))}")
        if not self.workspace_id:
            raise ConfigError("workspace_id is empty; leave it out for the default workspace")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Settings from `TRUSTFOLD_*`; `overrides` win over the environment, except over the kill switch.

        Raises:
            ConfigError: a variable does not parse, an override is no setting or cannot work.
        """
        environ = os.environ if environ is None else environ
        known = {one.name for one in fields(cls)}
        if unknown := sorted(overrides.keys() - known):
            raise ConfigError(f"{unknown[0]!r} is no setting of the guard; there are {', '.join(sorted(known))}")
        values: dict[str, Any] = {}
        for variable, (name, parse) in _VARIABLES.items():
            if name == "families" and (overrides.get(name) is not None or values.get("enabled") is False):
                continue  # the file is not needed, and a fault in it must not stand in the way
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


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _WORDS:
        raise ValueError("expected true or false")
    return _WORDS[word]


def _families_in(file: str) -> Mapping[str, str]:
    from ..config import load_rules  # few have a file of rules

    return load_rules(file).tools.families


_WORDS = {"1": True, "true": True, "yes": True, "on": True, "enforce": True} | dict.fromkeys(
    ("0", "false", "no", "off"), False
)


_VARIABLES: dict[str, tuple[str, Any]] = {
    "TRUSTFOLD_ENABLED": ("enabled", _boolean),
    "TRUSTFOLD_SHADOW": ("shadow", _boolean),
    "TRUSTFOLD_OPEN_MODE": ("enforce_breakers", _boolean),
    "TRUSTFOLD_DERIVE_IDEMPOTENCY": ("derive_keys", _boolean),
    "TRUSTFOLD_WORKSPACE": ("workspace_id", str),
    "TRUSTFOLD_DIGEST_KEY": ("digest_key", str.encode),
    "TRUSTFOLD_SEND_ARGS": ("send_args", _boolean),
    "TRUSTFOLD_SEND_ERRORS": ("send_errors", _boolean),
    "TRUSTFOLD_BUFFER_EVENTS": ("buffer_events", int),
    "TRUSTFOLD_TRACING": ("tracing", _boolean),
    "TRUSTFOLD_RULES": ("families", _families_in),
}

ENVIRONMENT: tuple[str, ...] = tuple(_VARIABLES)
"""Every variable that `GuardSettings.from_env` reads."""
