"""Changes whose outcome is unknown: what cuts a call off, and how its key is settled.

A change may have been made although its call failed: the answer was lost, the time was up, the caller went away. Its
key refuses repetitions until somebody knows: the tool itself, whose late answer comes from its thread; a `reconcile`
function of the tool, which asks the service; or an operator, by `ToolGuard.settle`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ...errors import DOCS
from ..attempts import attempt_limit_ms, invoke
from ..clock import GuardClock
from ..errors import Passthrough, is_control_flow, is_cut_off
from ..failure import CallFailure
from ..log import log_call
from ..request import GuardedCall

_NOT_SENT = frozenset(
    {"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "NewConnectionError", "PoolTimeout", "gaierror"}
)
_NOT_SENT_CODES = frozenset({"EAI_AGAIN", "ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND"})
_REFUSED_STATUS = frozenset({501, 503, 505})

OUTCOME_UNKNOWN = "outcome_unknown"

MESSAGE = (
    "an earlier call with this key was cut off, and nobody knows whether its change was made; find out, then settle "
    f"the key ({DOCS}/guard.md#unknown-outcomes)"
)


class ChangeSettlement(NamedTuple):
    """Outcome of a change that was unknown: done or failed.

    Attributes:
        outcome: `done`: it was made; `failed`: it was not, and the call may be made again.
        output: what the call returns to those who repeat it, if it is done.
    """

    outcome: Literal["done", "failed"]
    output: Any = None


Reconcile = Callable[[str | None, Mapping[str, Any]], Any]
"""Asks the service about a call, given its key and arguments; returns a `ChangeSettlement`, or None while unknown."""


def is_change(call: GuardedCall, *, remembers: bool) -> bool:
    """Whether repeating a call might do harm: its result is to be remembered, and nothing says it may be repeated."""
    return remembers and not call.may_repeat


def may_have_happened(failure: CallFailure) -> bool:
    """Whether a change may have been made although its call ended with this failure.

    Not if the service said so (a final answer, or a status by which it refuses work), nor if the request was
    never sent.
    """
    if failure.answer or failure.rejected or failure.neutral:
        return False
    if failure.http_status is not None:
        return failure.http_status >= 500 and failure.http_status not in _REFUSED_STATUS
    if failure.type in _NOT_SENT or failure.code in _NOT_SENT_CODES:
        return False
    return failure.retriable or failure.timed_out


def leaves_free(call: GuardedCall, error: BaseException, passthrough: Passthrough) -> bool:
    """Whether the key of a call that ended with an exception is free: its tool never began, or steered by it."""
    if not call.notes.began:
        return True
    return is_control_flow(error, (*passthrough, *call.tool.passthrough)) and not is_cut_off(error)


async def reconciled(call: GuardedCall, clock: GuardClock) -> ChangeSettlement | None:
    """Ask the tool's `reconcile` function what became of an earlier call; None: nobody knows."""
    ask = call.tool.reconcile
    if ask is None:
        return None
    limit = attempt_limit_ms(call, clock)
    try:
        async with asyncio.timeout(None if limit is None else max(0.0, limit) / 1000):
            found, error = await invoke(functools.partial(ask, call.given_key, call.args), {}, None)
    except Exception as raised:  # noqa: BLE001 - a service that cannot be asked leaves the outcome unknown
        found, error = None, raised
    if error is None and found is not None and not isinstance(found, ChangeSettlement):
        error = TypeError()
    if error is not None:
        log_call(logging.ERROR, "reconcile_failed", call, errorCode=type(error).__name__)
        return None
    settlement: ChangeSettlement | None = found
    return settlement
