"""Which calls are the same call: the caller's key, a hook's, or one computed from the call itself (design 4).

A computed key is a digest of a JSON array, so that no delimiter inside a name can make two calls look like one. Strings
count as they are: two commands that differ in a blank are two commands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..privacy import Privacy, canonical
from ..request import Call

VOLATILE = frozenset(
    {"clientTs", "client_ts", "retryCount", "retry_count", "traceparent", "tracestate", "baggage", "requestId"}
)
"""Parameters that tell one attempt from another, not one call from another; dropped at the top level only."""

_EXACT = 2**53


def computed_key(call: Call, privacy: Privacy) -> str:
    """Digest of namespace, tool, parameters, session and actor."""
    parts = [call.namespace, call.name, stable(call.args), call.session_id, call.actor_id]
    return f"auto:{privacy.digest(canonical(parts))}"


def store_key(call: Call, key: str, privacy: Privacy) -> str:
    """Key under which a call is kept: of its workspace, session and tool, so that no other one's key can meet it.

    What the caller chose as a key may hold anything, so only its digest is kept.
    """
    parts = [call.workspace_id, call.session_id, call.namespace, call.name, key]
    return privacy.digest(canonical(parts))


def params_digest(call: Call, privacy: Privacy) -> str:
    """Digest of the parameters: same key and another digest is a conflict."""
    return privacy.digest(canonical(stable(call.args)))


def stable(params: Mapping[str, Any]) -> Any:
    """Parameters without what changes from attempt to attempt; equal numbers are written alike."""
    return {name: _plain(value) for name, value in params.items() if name not in VOLATILE}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(inner) for inner in value), key=repr)
    if isinstance(value, float):
        if not math.isfinite(value):
            return repr(value)
        # -0.0 and 0.0 are one number, and so are 1.0 and 1.
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _EXACT:
        return f"int:{value}"
    return value
