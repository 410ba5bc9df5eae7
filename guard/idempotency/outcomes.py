"""Records of ended calls: written from a call's end, and read as the result of other calls with its key."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ...schemas.tool_envelopes import CacheHit, ResultError, ResultStatus
from ...schemas.vocabulary import BreakerState
from ...security.redaction import redact
from ..json_view import is_big
from ..privacy import PrivacyFilter
from ..request import GuardedCall
from ..result import ToolResult, refusal
from ..settings import DedupePolicy
from . import keys
from .copies import MAX_RESULT_BYTES, StoredResult, copied_exception, kept_copy
from .record import KEEP_UNKNOWN_MS, DedupeRecord, DedupeState
from .unknown import MESSAGE, OUTCOME_UNKNOWN

TRANSIENT_MS = 5_000
"""Milliseconds that the result of a run is kept for calls that were waiting, if it is not kept for later ones."""

_NOT_KEPT = "the same call is done, but its result was not kept: it cannot be copied, is big, or holds a secret"
_OTHER_PARAMS = "the idempotency key was used before with other parameters; give this call a key of its own"
_NO_PARAMS = (
    "the idempotency key was used before, and parameters that are no JSON cannot be compared; "
    "name those that do not count in volatile_params, or give this call a key of its own"
)


def remembers(call: GuardedCall) -> bool:
    """Whether the result of a call answers later ones: it has a given key, or its tool is declared `dedupe`."""
    return call.given_key is not None or bool(call.tool.dedupe)


async def ended(
    call: GuardedCall,
    record: DedupeRecord,
    result: ToolResult,
    policy: DedupePolicy,
    privacy: PrivacyFilter,
    *,
    in_process: bool,
) -> tuple[DedupeRecord, int]:
    """Return the record of a call's end, and the milliseconds to keep it."""
    error = result.error
    unknown = record.change and call.notes.cut_off
    keep = remembers(call) and not result.refused and (error is None or error.terminal)
    ttl_ms = (policy.done_ms if error is None else policy.failed_ms) if keep else TRANSIENT_MS
    shown = error is None or (result.exception is None and (in_process or privacy.send_errors))
    kept = await _kept(result, in_process=in_process) if shown and call.stream is None else StoredResult()
    made = msgspec.structs.replace(
        record,
        state=DedupeState.UNKNOWN if unknown else DedupeState.DONE if error is None else DedupeState.FAILED,
        payload=kept.payload,
        kept=kept.whole,
        size=kept.size,
        attempts=result.attempts,
        transient=not keep and not unknown,
        error=None if error is None else _stored(call, result.status, error, privacy, in_process=in_process),
        exception=copied_exception(result.exception) if in_process else None,
    )
    return made, KEEP_UNKNOWN_MS if unknown else ttl_ms


async def _kept(result: ToolResult, *, in_process: bool) -> StoredResult:
    """Return the result as it is stored: a copy in this process; elsewhere only JSON without secrets."""
    output = result.output
    if in_process:
        return await asyncio.to_thread(kept_copy, output) if is_big(output) else kept_copy(output)
    try:
        encoded = msgspec.json.encode(output)
        plain = msgspec.json.decode(encoded)
        if plain != output or type(plain) is not type(output) or redact(plain) != plain:
            return StoredResult()
    except Exception:  # noqa: BLE001 - no JSON, or objects that cannot even be compared
        return StoredResult()
    return StoredResult(plain, len(encoded), whole=True) if len(encoded) <= MAX_RESULT_BYTES else StoredResult()


def _stored(
    call: GuardedCall, status: ResultStatus, error: ResultError, privacy: PrivacyFilter, *, in_process: bool
) -> dict[str, Any]:
    code, message = error.code, error.message
    if not in_process:  # only what an event may carry
        code, message = privacy.word(code, call.args), privacy.message(message, call.args)
    return {
        "status": str(status),
        "code": code,
        "message": message,
        "retriable": error.retriable,
        "terminal": error.terminal,
        "breaker_state": error.breaker_state,
    }


def answer(call: GuardedCall, record: DedupeRecord, age_ms: float, *, waited: bool) -> ToolResult | None:
    """Return the end of another call as the result of this one; None if it was not kept and may be made again."""
    if record.state is DedupeState.UNKNOWN and not (waited and record.error is not None):
        return call.result(ResultStatus.ERROR, error=refusal(OUTCOME_UNKNOWN, MESSAGE))
    hit = CacheHit(matched_on="inflight" if waited else "completed", age_ms=age_ms, key_fingerprint=record.key[:16])
    if record.error is not None:
        fields = dict(record.error)
        status = ResultStatus(fields.pop("status"))
        state = fields.pop("breaker_state", None)
        error = ResultError(**fields, breaker_state=BreakerState(state) if state else None)
        return call.result(
            status, output=record.payload, error=error, cache=hit, from_cache=True, exception=record.exception
        )
    if record.kept:
        return call.result(ResultStatus.SUCCESS, output=record.payload, cache=hit, from_cache=True)
    if not remembers(call):
        return None
    error = refusal("result_unavailable", _NOT_KEPT)
    return call.result(ResultStatus.ERROR, error=error, cache=hit, from_cache=True)


def conflict(call: GuardedCall, known: DedupeRecord, own: DedupeRecord) -> ToolResult:
    """Return the result of a call whose key was used with other parameters."""
    comparable = keys.is_comparable(own.params_digest) and keys.is_comparable(known.params_digest)
    error = refusal("key_conflict", _OTHER_PARAMS if comparable else _NO_PARAMS)
    return call.result(ResultStatus.ERROR, error=msgspec.structs.replace(error, terminal=True))


def too_late(call: GuardedCall, message: str) -> ToolResult:
    """Return the result of a call whose time was up while it waited for an equal one."""
    error = ResultError(code="timeout", message=message, retriable=True, terminal=False)
    return call.result(ResultStatus.TIMEOUT, error=error)
