"""Redaction for one call: secrets of its arguments are removed from every text about it.

An error message may repeat a password without naming it. Patterns and names are those of `security.redaction`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..security.redaction import HIDDEN, MAX_DEPTH, is_secret_name, redact, redact_text, secret_spans

__all__ = ["HIDDEN", "MIN_KNOWN", "is_secret_name", "redact", "redact_text", "secrets_in"]

MIN_KNOWN = 4
"""Shortest secret that is searched for in texts, in characters; shorter ones would match everywhere."""


def secrets_in(value: Any, depth: int = 0) -> list[str]:
    """Return the values of secret-named fields, longest first."""
    found: set[str] = set()
    _collect(value, found, depth, secret=False)
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
