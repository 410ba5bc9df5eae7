"""Failures and successes that a plugin reports without a call (seed 1, Cross-Plugin Failure Reporting API)."""

from __future__ import annotations

from typing import Any

import msgspec

from ..schemas.events import ErrorInfo
from ..schemas.vocabulary import Severity
from .failure import of_exception, of_result
from .privacy import Privacy, canonical
from .redaction import redact


def error_info(error: str | dict[str, Any] | BaseException, privacy: Privacy) -> ErrorInfo:
    """A reported error as it may leave: a text, an object with `error`, or an exception.

    The message is classified here, as it may stay here.
    """
    if isinstance(error, BaseException):
        failure = of_exception(error)
    else:
        shape = error if isinstance(error, dict) else {"error": error or "error"}
        found = of_result(shape if "error" in shape else {"error": str(shape)})
        failure = found if found is not None else of_exception(RuntimeError(str(error)))
    return ErrorInfo(
        type=privacy.word(failure.type, {}) or None,
        message=privacy.message(failure.message, {}) or None,
        http_status=failure.http_status,
        code=privacy.word(failure.code, {}) or None,
        retriable=failure.retriable,
        severity=None if privacy.send_errors else failure.severity,
    )


def severity_of(word: Severity | str | None) -> Severity | None:
    """A severity by its word.

    Raises:
        ValueError: there is none of this name.
    """
    return None if word is None else Severity(word)


def context_of(context: dict[str, Any] | None) -> msgspec.Raw | None:
    """A report's context, redacted; None where there is none."""
    return msgspec.Raw(canonical(redact(context))) if context else None
