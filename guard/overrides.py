"""A session's own word about trust, in the shape of a published state (design 3, Trust: lookup order)."""

from __future__ import annotations

from ..schemas.codec import rfc3339
from ..schemas.public_state import TrustUpdated
from ..schemas.vocabulary import TrustState
from .request import Call
from .state_cache import SESSION_SCOPE, Trust


def session_trust(call: Call, state: TrustState, now_ms: int) -> Trust:
    """What an override says about a call."""
    record = TrustUpdated(
        schema_version="1.0",
        id=f"session-{call.session_id}",
        time=rfc3339(now_ms),
        workspace_id=call.workspace_id,
        kind="trust",
        key=call.name,
        scope=SESSION_SCOPE,
        state=state,
        reason="set for this session",
    )
    return Trust(state, record)
