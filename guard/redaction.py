"""Takes secrets out of what leaves the process (design 4, Privacy).

A secret is what stands behind a telling name, what looks like one, and, in the texts of a call, whatever was a secret
in that call's arguments: an error message that repeats a password does not say that it is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .secret_patterns import CARD, NAME, is_card, shapes_for

HIDDEN = "[redacted]"
"""What stands in place of a secret."""

MAX_DEPTH = 32
"""Deeper values are hidden whole."""

MIN_KNOWN = 4
"""Shorter secrets are not looked for in texts: they would be found everywhere."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret."""
    return NAME.search(_CAMEL.sub("_", name)) is not None


def redact_text(text: str, known: Iterable[str] = ()) -> str:
    """The text without what looks like a secret, and without the secrets already known."""
    for secret in known:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    for shape in shapes_for(text):
        text = shape.pattern.sub(HIDDEN, text)
    return CARD.sub(lambda found: HIDDEN if is_card(found.group()) else found.group(), text)


def redact(value: Any, known: Iterable[str] = (), depth: int = 0) -> Any:
    """A JSON value without secrets; objects and lists are copied, never changed."""
    if isinstance(value, str):
        return redact_text(value, known)
    if isinstance(value, bool | int | float) or value is None:
        return HIDDEN if _is_card_number(value) else value
    if depth >= MAX_DEPTH:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            redact_text(str(name), known): HIDDEN
            if is_secret_name(str(name)) and inner is not None
            else redact(inner, known, depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(inner, known, depth + 1) for inner in value]
    return redact_text(str(value), known)


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
        for shape in shapes_for(value):
            for match in shape.pattern.finditer(value):
                found.update(part for part in re.split(r"[\s:=@&?'\"]+", match.group()) if len(part) >= 2 * MIN_KNOWN)


def _is_card_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 10**12 <= value < 10**19 and is_card(str(value))
