"""Metadata of output records: output ids, CloudEvents headers and the W3C trace context.

Outputs use CloudEvents binary mode: the value is plain JSON that any consumer can read, the attributes are headers.
`traceparent` has its own plain header (CloudEvents, Distributed Tracing extension).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

from .codec import rfc3339

SOURCE = "/trustfold"
"""Default `ce_source` of outputs."""

Headers = list[tuple[str, bytes]]

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_PREPARED = blake2b(digest_size=16)
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def output_id(cause_id: str, output_type: str, ordinal: int) -> str:
    """Return the id of an output: a digest of its cause, its type, and its ordinal of that type and cause.

    The same input gives the same id on every replay, engine and worker, so a consumer can drop a repeated output
    (docs/design/contracts.md#envelope). The text is a UUID of version 8 (RFC 9562, custom).
    """
    hashed = _PREPARED.copy()  # cheaper than creating a new hash
    hashed.update(f"{cause_id}\x1f{output_type}\x1f{ordinal}".encode())
    digest = hashed.hexdigest()
    variant = _VARIANT[digest[16]]
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:]}"


def output_headers(
    output_id: str, output_type: str, time_ms: int, *, traceparent: str | None = None, source: str = SOURCE
) -> Headers:
    """Kafka headers of an output in CloudEvents binary mode.

    Args:
        output_id: id of the output; unique with the source, so consumers can deduplicate by it.
        output_type: wire type, e.g. `nudge.issued`.
        time_ms: time of the output, milliseconds.
        traceparent: trace context of the input event that caused it.
        source: URI reference of the deployment.
    """
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", output_id.encode()),
        ("ce_type", output_type.encode()),
        ("ce_source", source.encode()),
        ("ce_time", rfc3339(time_ms).encode()),
        ("content-type", b"application/json"),
    ]
    if traceparent:
        headers.append(("traceparent", traceparent.encode()))
    return headers


def traceparent_of(headers: Iterable[tuple[str, bytes | None]] | None, stated: str | None = None) -> str | None:
    """Return the W3C trace context of an input record: that of its headers, else the one stated in its event.

    None if it is absent or malformed, which is no error: the trace restarts, as the W3C recommendation asks.
    """
    for name, value in headers or ():
        if value is not None and name.lower() == "traceparent":
            stated = value.decode("ascii", "replace")
            break
    # Only a future version may carry more than four fields.
    known = stated and _TRACEPARENT.fullmatch(stated) and (len(stated) == 55 or not stated.startswith("00"))
    return stated if known else None
