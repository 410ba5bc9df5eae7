"""Fingerprints of calls and results, for detecting repetitions.

See docs/design/semantics.md#behaviour.

A call is its tool and its canonical arguments. A result is its content without what moves although nothing has
changed (`masks.py`). Fingerprints are 64-bit integers.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any

import orjson

from .masks import mask

# Result fields about time and place of a call, and about where a list goes on, not about its result
VOLATILE_FIELDS = frozenset(
    """duration duration_ms durationms elapsed elapsed_ms elapsedms took took_ms latency latency_ms pid ppid cwd
    timestamp time date created_at updated_at started_at finished_at request_id requestid trace_id traceid
    span_id session_id sessionid message_id messageid call_id callid run_id runid uuid nonce etag
    execution_count next_cursor nextcursor next_page_token nextpagetoken next_token nexttoken next_page nextpage
    continuation_token continuationtoken""".split()
)

_LONGEST_NAME = max(map(len, VOLATILE_FIELDS))
_NESTED = (dict, list)
_PREPARED = blake2b(digest_size=8)  # Prepared hash that is copied for each digest, which saves a third of the time


def digest(data: bytes) -> int:
    """Return a 64-bit digest of bytes; stable across processes and releases."""
    hashed = _PREPARED.copy()
    hashed.update(data)
    return int.from_bytes(hashed.digest(), "big")


def canonical(value: Any) -> bytes:
    """Encode as JSON with sorted keys: equal arguments give equal bytes.

    A copy, as states keep it: what orjson returns occupies 4 KB, however short it is.
    """
    return memoryview(orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)).tobytes()


def call_fingerprint(tool_name: str, canonical_args: bytes) -> int:
    """Return the fingerprint of a call: its tool and canonical arguments (or the publisher's digest of them)."""
    return digest(tool_name.encode() + b"\x00" + canonical_args)


def without_volatile_fields(value: Any) -> Any:
    """Return a JSON value without fields about its time and place, at any depth."""
    if isinstance(value, dict):
        return {
            name: without_volatile_fields(inner) if isinstance(inner, _NESTED) else inner
            for name, inner in value.items()
            if len(name) > _LONGEST_NAME or not _is_volatile(name)
        }
    if isinstance(value, list):
        return [without_volatile_fields(inner) if isinstance(inner, _NESTED) else inner for inner in value]
    return value


@lru_cache(maxsize=4096)
def _is_volatile(name: str) -> bool:
    return name.lower().replace("-", "_") in VOLATILE_FIELDS


def result_fingerprint(raw: bytes, parsed: Any) -> int:
    """Return the fingerprint of a result, given as JSON bytes and parsed (None if not an object or list)."""
    if parsed is not None:
        raw = canonical(without_volatile_fields(parsed))
    return digest(mask(raw))
