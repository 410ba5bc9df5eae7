"""The guard: the in-process side, for agent platforms.

    guard = await ToolGuard.connect("kafka://localhost:9092", workspace_id="w1")
    result = await guard.call("http_request", fetch, {"url": url}, session_id=session)

Wraps tool calls: checks trust and circuits in a local view, coalesces duplicate calls, retries, publishes events and
delivers trustfold's nudges to the model. Each public name is imported at first use; none loads a stream engine or a
database.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import CallNotPermitted, EnvelopeRejected, GuardError, ToolFailed
    from .guarantees import ExecutionGuarantees, GracefulDegradationPlan
    from .guard import ToolGuard
    from .idempotency.memory import InMemoryDedupeStore
    from .idempotency.redis import RedisDedupeStore
    from .idempotency.sqlite import SqliteDedupeStore
    from .idempotency.unknown import ChangeSettlement
    from .permission import PermissionWrapper
    from .result import ToolResult
    from .session import GuardSession
    from .settings import DedupePolicy, GuardSettings, RetryPolicy
    from .sync import SyncToolGuard
    from .synthesis import RecursiveResult, estimate_confidence, synthesize
    from .tools import ToolRegistration

_HOMES = {
    "CallNotPermitted": ".errors",
    "DedupePolicy": ".settings",
    "EnvelopeRejected": ".errors",
    "ExecutionGuarantees": ".guarantees",
    "GracefulDegradationPlan": ".guarantees",
    "GuardError": ".errors",
    "GuardSession": ".session",
    "GuardSettings": ".settings",
    "InMemoryDedupeStore": ".idempotency.memory",
    "PermissionWrapper": ".permission",
    "RecursiveResult": ".synthesis",
    "RedisDedupeStore": ".idempotency.redis",
    "RetryPolicy": ".settings",
    "ChangeSettlement": ".idempotency.unknown",
    "SqliteDedupeStore": ".idempotency.sqlite",
    "SyncToolGuard": ".sync",
    "ToolRegistration": ".tools",
    "ToolFailed": ".errors",
    "ToolGuard": ".guard",
    "ToolResult": ".result",
    "estimate_confidence": ".synthesis",
    "synthesize": ".synthesis",
}

__all__ = [
    "CallNotPermitted",
    "ChangeSettlement",
    "DedupePolicy",
    "EnvelopeRejected",
    "ExecutionGuarantees",
    "GracefulDegradationPlan",
    "GuardError",
    "GuardSession",
    "GuardSettings",
    "InMemoryDedupeStore",
    "PermissionWrapper",
    "RecursiveResult",
    "RedisDedupeStore",
    "RetryPolicy",
    "SqliteDedupeStore",
    "SyncToolGuard",
    "ToolFailed",
    "ToolGuard",
    "ToolRegistration",
    "ToolResult",
    "estimate_confidence",
    "synthesize",
]


def __getattr__(name: str) -> object:
    """Import a public name from its home at its first use (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported already or not."""
    return sorted(set(globals()) | set(__all__))
