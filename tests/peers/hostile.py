"""Values that no JSON holds, named in a case by texts that speak of them."""

from __future__ import annotations

import re
from typing import Any

_SPEAKS_OF = tuple(
    (re.compile(words, re.IGNORECASE), value)
    for words, value in (
        (r"surrogate", "\ud83d"),
        (r"\bNaN\b|not a number", float("nan")),
        (r"\b-?inf(?:inity)?\b", float("inf")),
        (
            r"keys? that (?:are|is) not?|(?:non|not)[- ](?:a )?str(?:ing)?s?[- ]keys?|(?:int|integer|numeric)[- ]keys?",
            {1: "one", None: "none", (2, 3): "pair"},
        ),
    )
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
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(is_hostile, parts)) or (made_hostile(value) is not value and isinstance(value, str))
