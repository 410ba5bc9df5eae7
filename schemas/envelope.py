"""Ids and headers: deterministic output ids, CloudEvents binary-mode headers, W3C trace context (design 2, Envelope)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

SOURCE = "/trustfold"
"""`ce_source` of everything trustfold writes."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")


def output_id(cause: str, output_type: str, ordinal: int) -> str:
    """Id of an output: a digest of its cause, type and ordinal, written as a UUID of version 8."""
    digits = blake2b(f"{cause}\x00{output_type}\x00{ordinal}".encode(), digest_size=16).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{'89ab'[int(digits[16], 16) & 3]}{digits[17:20]}-{digits[20:]}"


def headers(output_type: str, made: str, time: str, traceparent: str | None = None) -> list[tuple[str, bytes]]:
    """CloudEvents 1.0 binary-mode headers of one output record."""
    listed = [
        ("ce_specversion", b"1.0"),
        ("ce_id", made.encode()),
        ("ce_type", f"dev.trustfold.{output_type}.v1".encode()),
        ("ce_source", SOURCE.encode()),
        ("ce_time", time.encode()),
        ("content-type", b"application/json"),
    ]
    if traceparent:
        listed.append(("traceparent", traceparent.encode()))
    return listed


def traceparent_of(record_headers: Iterable[tuple[str, bytes]]) -> str | None:
    """W3C trace context of an input record; None when absent or malformed."""
    for name, value in record_headers:
        if name.lower() == "traceparent" and value is not None:
            text = value.decode("ascii", errors="replace").strip()
            return text if _TRACEPARENT.match(text) else None
    return None
