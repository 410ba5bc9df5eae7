"""A kind of secret: its expression, and the strings (needles) without which no text matches it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class SecretShape(NamedTuple):
    """Pattern that is a secret wherever it occurs."""

    kind: str  # kind of secret
    # expression over UTF-8; the first matching group is the secret, or the whole match without one
    pattern: re.Pattern[bytes]
    # every match contains one of these, or begins with one if `anchored`. Those of `TOKENS` stand in the text as they
    # are, others in what `plain` makes of it.
    needles: tuple[bytes, ...]
    anchored: bool = False  # every match begins with one of the needles
    folded: bool = False  # the expression is for texts in lower case
    # groups of strings; what `plain` makes of the text contains one of each group, too
    beside: tuple[tuple[bytes, ...], ...] = ()
    # decides about a match; gets the match and the text in its original case. None: every match is a secret.
    check: Callable[[re.Match[bytes], bytes], bool] | None = None
    # of a match that only begins what holds secrets: their places, and where that ends
    places: Callable[[re.Match[bytes], bytes], tuple[list[tuple[int, int]], int]] | None = None


_PLAIN = bytes(48 if 48 <= byte <= 57 else byte + 32 if 65 <= byte <= 90 else byte for byte in range(256))


def plain(text: bytes) -> bytes:
    """Return a text with its ASCII letters in lower case and every digit as `0`, each at its place."""
    return text.translate(_PLAIN)


def shape(
    kind: str,
    needles: str,
    pattern: str,
    check: Callable[..., bool] | None = None,
    *beside: str,
    places: Callable[..., tuple[list[tuple[int, int]], int]] | None = None,
) -> SecretShape:
    """Return a shape; `needles` are separated by `|` and begin with `^` if matches begin with them."""
    folded = pattern.startswith("(?#folded)")
    return SecretShape(
        kind,
        re.compile(pattern.removeprefix("(?#folded)").encode()),
        tuple(needles.removeprefix("^").encode().split(b"|")),
        needles.startswith("^"),
        folded,
        tuple(tuple(group.encode().split(b"|")) for group in beside),
        check,
        places,
    )
