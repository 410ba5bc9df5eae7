"""Redaction of results: a result is replaced by its digest and, if it reports a failure, that failure.

The replacement lets the folds make the same decisions when the recorded event is replayed (`whatif`): equal results
have equal digests, and a reported failure is kept.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import orjson
from msgspec import UNSET, Raw

from ..projections.calls import fingerprints
from ..projections.calls.classify import MAX_MESSAGE_CHARS, failure_in_result
from ..projections.calls.masks import mask
from ..projections.session.verdicts import Verdict, text_of
from ..schemas import events as ev
from ..schemas.vocabulary import Status

_LETTERS = bytes.maketrans(b"0123456789abcdef", b"abcdefghijklmnop")
_NO_ERROR = ev.ErrorInfo()
_DIGEST = re.compile(r"[a-p]{16}")
_STAND_IN_KEYS = frozenset({"digest", "isError", "error", "http_status", "content"})


def raw_result(event: ev.ToolCallFinished) -> bytes:
    """Raw bytes of a result; empty if there is none."""
    raw = b"" if event.result is UNSET else bytes(event.result)
    return b"" if raw == b"null" else raw


def without_result(
    event: ev.ToolCallFinished, raw: bytes, verdict: Verdict
) -> tuple[ev.ToolCallFinished, dict[str, Any]]:
    """Event as it is stored, and the replacement of its result; empty if there is no result."""
    if not raw:
        return (event if event.result is UNSET else msgspec.structs.replace(event, result=UNSET)), {}
    parsed = ev.json_of(Raw(raw)) if raw[:1] in {b"{", b"["} else None
    if isinstance(parsed, dict) and _is_stand_in(parsed):
        return event, parsed
    told = event.error is not None and event.error != _NO_ERROR
    known = verdict.result if not (told or verdict.neutral) else fingerprints.result_fingerprint(raw, parsed)
    # Letters only: digits could be taken for a volatile part.
    digest = known.to_bytes(8).hex().encode().translate(_LETTERS).decode()
    if told:
        return msgspec.structs.replace(event, result=UNSET, result_digest=digest), {}
    made: dict[str, Any] = {"digest": digest} if parsed is None else _stand_in(parsed, digest)
    if event.status is not Status.SUCCESS and "isError" not in made:
        made["isError"] = True  # the result of a failed call without an error is treated as its message
        if text := text_of(raw, parsed):
            made["error"] = {"message": _masked(text)}
    return msgspec.structs.replace(event, result=Raw(orjson.dumps(made))), made


def _is_stand_in(result: dict[str, Any]) -> bool:
    """True if a value is a recorded replacement, not a result."""
    digest = result.get("digest")
    return isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None and result.keys() <= _STAND_IN_KEYS


def _stand_in(result: Any, digest: str) -> dict[str, Any]:
    """Replacement of a result: its digest and, if it reports a failure, that failure as folds read it."""
    made: dict[str, Any] = {"digest": digest}
    failure = failure_in_result(result)
    if failure is None:
        return made
    told = {"type": failure.type, "message": _masked(failure.message), "code": failure.code}
    made["isError"] = True
    if any(told.values()):
        made["error"] = {name: text for name, text in told.items() if text}
    if failure.http_status is not None:
        made["http_status"] = failure.http_status
    content = result.get("content")
    first = content[0].get("text") if isinstance(content, list) and content and isinstance(content[0], dict) else None
    if isinstance(first, str) and not failure.message:
        made["content"] = [{"text": _masked(first)}]
    return made


def _masked(text: str) -> str:
    return mask(text[:MAX_MESSAGE_CHARS].encode(errors="replace")).decode(errors="replace")


def reported(stand_in: dict[str, Any]) -> dict[str, Any]:
    """Failure in the replacement of a result."""
    content = stand_in.get("content")
    return stand_in.get("error") or ({"message": content[0]["text"]} if content else {})
