"""Log of a guard: one JSON object a line, on the logger `trustfold.guard`.

See docs/design/guard.md#logs-metrics-and-traces.
Only names, codes, numbers and digests are logged, never arguments, results or messages, so no secret is logged.
"""

from __future__ import annotations

import logging
from typing import Any

import orjson

from ..security.redaction import redact_text
from .json_view import json_view, text_of
from .request import GuardedCall

LOGGER = logging.getLogger("trustfold.guard")
LOGGER.addHandler(logging.NullHandler())  # a library: where nobody has set up logging, nothing is printed


def log_event(level: int, event: str, **fields: Any) -> None:
    """Log an event with its fields; fields that are None are omitted."""
    if not LOGGER.isEnabledFor(level):
        return
    shown = {
        name: redact_text(value) if isinstance(value, str) else value
        for name, value in fields.items()
        if value is not None
    }
    try:
        line = orjson.dumps({"event": event, **shown}, default=text_of).decode()
    except orjson.JSONEncodeError:  # a lone surrogate, or a number beyond 64 bits
        line = orjson.dumps(json_view({"event": event, **shown})).decode()
    LOGGER.log(level, "%s", line)


def log_call(level: int, event: str, call: GuardedCall, **fields: Any) -> None:
    """Log an event about a call, with the ids that name the call."""
    if LOGGER.isEnabledFor(level):
        log_event(
            level,
            event,
            requestId=call.request_id,
            toolName=call.name,
            sessionKey=call.session_id,
            idempotencyKeyHash=call.notes.key_fingerprint,
            correlationId=call.correlation_id,
            **fields,
        )


def log_store_failure(call: GuardedCall, operation: str, error: BaseException) -> None:
    """Log that the store of idempotency keys did not carry out an operation for a call."""
    log_call(logging.ERROR, "dedupe_store_failed", call, operation=operation, errorCode=type(error).__name__)
