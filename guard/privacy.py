"""Privacy filter of published data: digests and keys, or redacted text if it is enabled.

See docs/design/guard.md#privacy.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
import orjson

from ..projections.calls import fingerprints
from .redaction import redact, redact_text, secrets_in

MAX_TEXT = 500
"""Longest published error message, in characters."""

_DIGEST_HEX = 32


class Privacy:
    """Converts arguments, results, errors and texts to their published form.

    Attributes:
        send_args: publish arguments and texts, redacted; else only their digests.
        send_errors: publish error messages, redacted; else only a digest.
    """

    def __init__(self, digest_key: bytes = b"", *, send_args: bool = False, send_errors: bool = False) -> None:
        """With `digest_key`, a secret of the deployment, arguments cannot be guessed from their digests."""
        self.send_args = send_args
        self.send_errors = send_errors
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
        masked = fingerprints.mask(text.encode(errors="replace"))
        return f"withheld {self.digest(masked)[:12]}" if text else ""

    def word(self, text: str, args: Mapping[str, Any], limit: int = 120) -> str:
        """Return a short text such as an error code, without secrets."""
        return redact_text(text[:limit], secrets_in(args))


def canonical(value: Any) -> bytes:
    """Encode any value as JSON with sorted keys; values that JSON cannot hold become text."""
    try:
        return fingerprints.canonical(value)
    except (orjson.JSONEncodeError, TypeError, RecursionError):
        try:
            return orjson.dumps(value, default=repr, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
        except (orjson.JSONEncodeError, TypeError, RecursionError):
            return repr(value).encode(errors="replace")


def is_private_key_of(failure_key: str) -> bool:
    """Whether a failure key contains a secret (in a path or a host)."""
    return redact_text(failure_key) != failure_key
