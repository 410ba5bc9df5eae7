"""Privacy filter of published data: digests and keys, or redacted text if it is enabled.

See docs/design/guard.md#privacy.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec
import orjson

from ..projections.calls import fingerprints
from ..projections.calls.masks import failure_text
from ..schemas.events import ErrorInfo
from ..schemas.vocabulary import FailureSeverity
from ..security.redaction import MAX_DEPTH, redact, redact_text, secret_spans
from ..security.secret_patterns.names import is_secret_name
from .failure import CallFailure

MAX_TEXT = 500  # Longest published error message, in characters
MAX_WORD = 120  # Longest published error type or code, in characters
MIN_KNOWN = 4  # Shortest secret that is searched for in texts, in characters; shorter ones would match everywhere

_DIGEST_HEX = 32


class PrivacyFilter:
    """Converts arguments, results, errors and texts to their published form."""

    def __init__(self, digest_key: bytes = b"", *, send_args: bool = False, send_errors: bool = False) -> None:
        """With `digest_key`, a secret of the deployment, arguments cannot be guessed from their digests."""
        self.send_args = send_args  # publish arguments and texts, redacted; else only their digests
        self.send_errors = send_errors  # publish error messages, redacted; else only a digest
        self._key = digest_key

    def digest(self, data: bytes) -> str:
        """Return 128 bits in hex: HMAC-SHA-256 with the deployment's secret, or plain SHA-256 without one."""
        made = hmac.digest(self._key, data, "sha256") if self._key else sha256(data).digest()
        return made.hex()[:_DIGEST_HEX]

    def args_digest(self, args: Mapping[str, Any]) -> str:
        """Return a digest of arguments; independent of the order of names."""
        return self.digest(canonical(args))

    def result_digest(self, result: Any) -> tuple[str, int]:
        """Return a digest of a result with volatile parts masked, as the folds compute it, and its size in bytes."""
        raw = canonical(result)
        parsed = result if isinstance(result, dict | list) else None
        mark = fingerprints.result_fingerprint(raw, orjson.loads(raw) if parsed is not None else None)
        return self.digest(mark.to_bytes(8, "big")), len(raw)

    def args(self, args: Mapping[str, Any]) -> msgspec.Raw:
        """Return redacted arguments as JSON, for `send_args`."""
        return msgspec.Raw(canonical(redact(args)))

    def text_digest(self, text: str) -> str:
        """Return a digest of a text."""
        return self.digest(text.encode(errors="replace"))

    def message(self, text: str, args: Mapping[str, Any]) -> str:
        """Return the published form of an error message: redacted text, or a digest."""
        if self.send_errors:
            return redact_text(text[: 4 * MAX_TEXT], secrets_in(args))[:MAX_TEXT]
        masked = failure_text(text, "")
        return f"withheld {self.digest(masked)[:12]}" if text else ""

    def word(self, text: str, args: Mapping[str, Any]) -> str:
        """Return a short text such as an error code, without secrets."""
        return redact_text(text[:MAX_WORD], secrets_in(args))

    def error(
        self, failure: CallFailure, args: Mapping[str, Any], kind: str, severity: FailureSeverity | None
    ) -> ErrorInfo:
        """Return the published form of a failure; texts that `args` contain as secrets are removed.

        Args:
            failure: the failure.
            args: arguments of the call.
            kind: published type.
            severity: published severity; None if a reader can classify the failure by its message.
        """
        return ErrorInfo(
            type=self.word(kind, args) or None,
            message=self.message(failure.message, args) or None,
            http_status=failure.http_status,
            code=self.word(failure.code, args) or None,
            retriable=failure.retriable,
            severity=severity,
        )


def canonical(value: Any) -> bytes:
    """Encode any value as JSON with sorted keys; values that JSON cannot hold become text."""
    try:
        return fingerprints.canonical(value)
    except (orjson.JSONEncodeError, TypeError, RecursionError):
        try:
            return orjson.dumps(value, default=repr, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
        except (orjson.JSONEncodeError, TypeError, RecursionError):
            return repr(value).encode(errors="replace")


@lru_cache(maxsize=4096)
def is_private_key_of(failure_key: str) -> bool:
    """Whether a failure key contains a secret (in a path or a host)."""
    return redact_text(failure_key) != failure_key


def secrets_in(value: Any) -> list[str]:
    """Return secrets in arguments, longest first, so that texts about the call can be searched for them.

    These are the values of fields with secret names, and what the patterns of `security.redaction` find: an error
    message may repeat a password without naming it.
    """
    found: set[str] = set()
    _collect(value, found, 0, secret=False)
    return sorted(found, key=len, reverse=True)


def _collect(value: Any, found: set[str], depth: int, *, secret: bool) -> None:
    if depth >= MAX_DEPTH:
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _collect(inner, found, depth + 1, secret=secret or is_secret_name(str(name)))
    elif isinstance(value, list | tuple):
        for inner in value:
            _collect(inner, found, depth + 1, secret=secret)
    elif secret and isinstance(value, str | int | float) and not isinstance(value, bool):
        if len(text := str(value)) >= MIN_KNOWN:
            found.add(text)
    elif isinstance(value, str):
        for text in secret_spans(value):
            found.add(text) if len(text) >= 2 * MIN_KNOWN else None
            found.update(part for part in re.split(r"[\s:=@&?'\"]+", text) if len(part) >= 2 * MIN_KNOWN)
