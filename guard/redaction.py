"""Redaction of one call: what was a secret in its arguments is one in every text about it.

An error message that repeats a password does not say that it is one. Shapes and names are those of
`security.redaction`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..security.redaction import HIDDEN, MAX_DEPTH, is_secret_name, redact, redact_text, secret_spans

__all__ = ["HIDDEN", "MIN_KNOWN", "is_secret_name", "redact", "redact_text", "secrets_in"]

MIN_KNOWN = 4
"""Shorter secrets are not looked for in texts: they would be found everywhere."""


def secrets_in(value: Any, depth: int = 0) -> list[str]:
    """Texts that stand behind telling names, longest first, to be looked for elsewhere."""
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
