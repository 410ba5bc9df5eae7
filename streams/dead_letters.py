"""Restores the record of a dead letter, byte for byte."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any


def original(letter: Mapping[str, Any], name: str) -> bytes | None:
    """Return the original `key` or `value` of a dead letter's record; None if it had none."""
    encoded = letter.get(f"{name}_base64")
    if encoded is not None:
        return b64decode(encoded)
    text = letter.get(name)
    return text.encode() if text is not None else None
