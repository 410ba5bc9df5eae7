"""What of a call leaves the process: digests and keys, or redacted text where it is asked for.

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
"""Longest error message that is sent, in characters."""

_DIGEST_HEX = 32


class Privacy:
    """Decides what a call's arguments, results, errors and texts look like outside.

    Attributes:
        send_args: arguments and texts are sent, redacted; else only digests of them.
        send_errors: error messages are sent, redacted; else only a digest that tells one from another.
    """

    def __init__(self, digest_key: bytes = b"", *, send_args: bool = False, send_errors: bool = False) -> None:
        """With `digest_key`, a secret of the deployment, nobody can guess arguments from their digests."""
        self.send_args = send_args
        self.send_errors = send_errors
        self._key = digest_key

    def digest(self, data: bytes) -> str:
        """128 bits in hex: HMAC-SHA-256 with the deployment's secret, or plain SHA-256 without one."""
        made = hmac.digest(self._key, data, "sha256") if self._key else sha256(data).digest()
        return made.hex()[:_DIGEST_HEX]

    def args_digest(self, args: Mapping[str, Any]) -> str:
        """Digest of arguments: equal for equal ones, whatever the order of their names."""
        return self.digest(canonical(args))

    def result_digest(self, result: Any) -> tuple[str, int]:
        """Digest of a result with its volatile parts masked, as the folds would do it, and its size in bytes."""
        raw = canonical(result)
        parsed = result if isinstance(result, dict | list) else None
        mark = fingerprints.result_fingerprint(raw, orjson.loads(raw) if parsed is not None else None)
        return self.digest(mark.to_bytes(8, "big")), len(raw)

    def args(self, args: Mapping[str, Any]) -> msgspec.Raw:
        """Redacted arguments as JSON, for those who send them."""
        return msgspec.Raw(canonical(redact(args)))

    def text_digest(self, text: str) -> str:
        """Digest of a text."""
        return self.digest(text.encode(errors="replace"))

    def message(self, text: str, args: Mapping[str, Any]) -> str:
        """An error message as it may leave: redacted, or only told apart from others."""
        if self.send_errors:
            return redact_text(text[: 4 * MAX_TEXT], secrets_in(args))[:MAX_TEXT]
        masked = fingerprints.mask(text.encode(errors="replace"))
        return f"withheld {self.digest(masked)[:12]}" if text else ""

    def word(self, text: str, args: Mapping[str, Any], limit: int = 120) -> str:
        """A short word such as an error code, without secrets."""
        return redact_text(text[:limit], secrets_in(args))


def canonical(value: Any) -> bytes:
    """JSON with sorted keys of any value; what JSON cannot hold is written as text."""
    try:
        return fingerprints.canonical(value)
    except (orjson.JSONEncodeError, TypeError, RecursionError):
        try:
            return orjson.dumps(value, default=repr, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
        except (orjson.JSONEncodeError, TypeError, RecursionError):
            return repr(value).encode(errors="replace")


def is_private_key_of(failure_key: str) -> bool:
    """Whether a failure key would give away a secret (a path or a host that holds one)."""
    return redact_text(failure_key) != failure_key
