"""Values that no JSON holds, named in a case by texts that speak of them."""

from __future__ import annotations

import re
from typing import Any

_SPEAKS_OF = (
    (re.compile(r"surrogate", re.IGNORECASE), "\ud83d"),
    (re.compile(r"\bNaN\b|not a number", re.IGNORECASE), float("nan")),
    (re.compile(r"\b-?inf(?:inity)?\b", re.IGNORECASE), float("inf")),
    (
        re.compile(
            r"keys? that (?:are|is) (?:no|not)|(?:non|not)[- ](?:a )?str(?:ing)?s?[- ]keys?"
            r"|(?:int(?:eger)?|numeric)[- ]keys?",
            re.IGNORECASE,
        ),
        {1: "one", None: "none", (2, 3): "pair"},
    ),
)


def made_hostile(value: Any) -> Any:
    """A value with every text that speaks of a hostile value replaced by it."""
    if isinstance(value, dict):
        return {name: made_hostile(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [made_hostile(inner) for inner in value]
    return next((hostile for words, hostile in _SPEAKS_OF if isinstance(value, str) and words.search(value)), value)


def is_hostile(value: Any) -> bool:
    """Whether a value speaks of any."""
    if isinstance(value, dict):
        return any(map(is_hostile, value.values()))
    if isinstance(value, list):
        return any(map(is_hostile, value))
    return isinstance(value, str) and any(words.search(value) for words, _ in _SPEAKS_OF)
