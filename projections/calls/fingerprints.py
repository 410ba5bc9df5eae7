"""Fingerprints of calls and results, for detecting repetitions.

See docs/design/semantics.md#behaviour.

A call is its tool and its canonical arguments. A result is its content with the volatile parts masked:
times, durations, UUIDs, process ids, hex addresses, temporary paths. Other numbers are kept: a counter that
moves is progress. Fingerprints are 64-bit integers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import orjson

MAX_RESULT_BYTES = 1024
"""Longer results are represented by head and tail of this size together, and their length; bounds the cost."""

VOLATILE_FIELDS = frozenset(
    """duration duration_ms durationms elapsed elapsed_ms elapsedms took took_ms latency latency_ms pid ppid cwd
    timestamp time date created_at updated_at started_at finished_at request_id requestid trace_id traceid
    span_id session_id sessionid message_id messageid call_id callid run_id runid uuid nonce etag""".split()
)
"""Result fields about time and place of a call, not about its result."""

_LONGEST_NAME = max(map(len, VOLATILE_FIELDS))
_NESTED = (dict, list)
_UUID_HINT = re.compile(rb"-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-")
_UUID = re.compile(rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_PATH_HINT = re.compile(rb"/(?:tmp|var/folders|private/var)/")
_TEMPORARY = re.compile(rb"/(?:tmp|var/folders|private/var/folders|private/tmp)/[^\s\"'\\,;:)]+")
_PID_HINT = re.compile(rb"pid[\"']?\s*[:=#]?\s*0")
_PID = re.compile(rb"\b(p?pid|P?PID)([\"']?\s*[:=#]?\s*)\d+")
# One digit, then alternatives that each start with a plain character set: the engine skips to digits at C speed and
# drops an alternative at its first character. The look-behinds refuse to start inside a number or a word.
_NUMERIC = re.compile(
    rb"""[0-9](?:
      x(?<=0x)[0-9a-fA-F]+                                                                          # address
    | [0-9](?<![\w.][0-9]{2})[0-9]{2}-[0-9]{2}-[0-9]{2}(?:[T\ ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?
        (?:Z|\ ?[+-][0-9]{2}:?[0-9]{2})?)?(?![0-9])                                                 # date, time
    | [0-9:](?<![\w:.][0-9].)(?:(?<=:)|:)[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:\ ?[AaPp][Mm])?(?![:0-9])  # clock
    | [4-9](?<![\w.][0-9].)(?<=1.)[0-9]{8}(?:[0-9]{3}|\.[0-9]+)?(?![0-9])                           # Unix time
    | [0-9.\ mnus\xc2](?<![\w.][0-9].)(?:(?<=[0-9])[0-9]*(?:\.[0-9]+)?\ ?|(?<=\.)[0-9]+\ ?|(?<=\ ))
        (?:ms|msec|[nu]s|\xc2\xb5s|s|secs?|seconds?|milliseconds?|minutes?|mins?)(?!\w)             # duration
    | (?<=[0-9])(?<![\w.][0-9])(?:ms|msec|[nu]s|\xc2\xb5s|s|secs?|seconds?|mins?|minutes?)(?!\w)   # one digit
    )""",
    re.VERBOSE,
)

# A cheap look first, with every digit read as 0 and PID as pid: few results hold any of these, and one literal is found
# much faster.
_PLAIN = bytes.maketrans(b"123456789PID", b"000000000pid")
_NUMERIC_HINT = re.compile(rb"0(?::00|-00-00|x|000000000|\ ?(?:m(?:s|in|illi)|[nu]s|\xc2\xb5s|s(?!\w)|sec))")


_PREPARED = blake2b(digest_size=8)
"""Prepared hash that is copied for each digest, which saves a third of the time."""


def digest(data: bytes) -> int:
    """Return a 64-bit digest of bytes; stable across processes and releases."""
    hashed = _PREPARED.copy()
    hashed.update(data)
    return int.from_bytes(hashed.digest(), "big")


def canonical(value: Any) -> bytes:
    """Encode as JSON with sorted keys: equal arguments give equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def call_fingerprint(tool_name: str, canonical_args: bytes) -> int:
    """Return the fingerprint of a call: its tool and canonical arguments (or the publisher's digest of them)."""
    return digest(tool_name.encode() + b"\x00" + canonical_args)


def mask(text: bytes) -> bytes:
    """Replace the volatile parts of a result by fixed markers."""
    if len(text) > MAX_RESULT_BYTES:
        half = MAX_RESULT_BYTES // 2
        text = text[:half] + b"\x00%d\x00" % len(text) + text[-half:]
    if _PATH_HINT.search(text):
        text = _TEMPORARY.sub(b"<tmp>", text)
    plain = text.translate(_PLAIN)
    if b"0" not in plain:
        return text
    if _UUID_HINT.search(text):
        text = _UUID.sub(b"<uuid>", text)
    if _PID_HINT.search(plain):
        text = _PID.sub(rb"\1 <pid>", text)
    return _NUMERIC.sub(b"<#>", text) if _NUMERIC_HINT.search(plain) else text


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


def error_fingerprint(status: str, error_type: str, http_status: int | None, code: str, message: str) -> int:
    """Return the fingerprint of a failure: equal if status, type, codes and masked message are equal."""
    head = f"{status}\x00{error_type}\x00{http_status or ''}\x00{code}\x00".encode()
    return digest(head + mask(message.encode(errors="replace")))


def failure_text(message: str, request: str) -> bytes:
    """TEMP."""
    text = message[:4000]
    import re as _re

    words = set(_re.findall(r"[^\s'\"`;|&<>()\[\]{},=]{3,}", request))
    for w in sorted(words, key=len, reverse=True)[:60]:
        text = text.replace(w, "<arg>")
    text = _re.sub(r"\bline \d+\b", "line <n>", text)
    text = _re.sub(
        r"(?i)\b(?:request|trace|span|chunk|correlation|ray)[_ -]?id[\"']?\s*[:=]?\s*[\"']?[\w-]{4,}", "<id>", text
    )
    text = _re.sub(r"(?m)^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", "<klog> ", text)
    text = _re.sub(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}\b", "<hex>", text)
    return mask(" ".join(text.split()).encode(errors="replace"))
