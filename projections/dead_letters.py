"""Dead letters: records that could not be processed, complete except for secrets, with the reason.

See docs/design/contracts.md#bad-input.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from ..errors import EventRejected
from ..schemas.codec import rfc3339
from ..schemas.envelope import output_id
from ..security.redaction import redact_record, redact_text
from .emitter import SCHEMA_VERSION, StageOutput
from .output_redaction import key_without_secrets

if TYPE_CHECKING:
    from .stage import SourceRecord

TYPE = "dead_letter"


def dead_letter(record: SourceRecord, topic: str, partition: int, rejected: EventRejected) -> StageOutput:
    """Create the dead letter of one record: redacted original bytes, position, reason code, JSON path and message.

    Text is kept as text; bytes that are not UTF-8 are kept as base64 under `value_base64`.
    """
    made = output_id(f"{topic}/{partition}/{record.offset}", TYPE, 0)
    time_ms = record.timestamp if record.timestamp and record.timestamp > 0 else 0
    body: dict[str, object] = {
        "type": TYPE,
        "id": made,
        "schema_version": SCHEMA_VERSION,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "reason": str(rejected.reason),
        "path": redact_text(rejected.path),
        "message": redact_text(rejected.message),
    }
    if time_ms:
        body["time"] = rfc3339(time_ms)
    for name, original in (("key", record.key), ("value", record.value)):
        if original is None:
            continue
        shown = redact_record(original)
        try:
            body[name] = shown.decode()
        except UnicodeDecodeError:
            body[f"{name}_base64"] = b64encode(shown).decode()
    key = key_without_secrets(record.key.decode(errors="replace")) if record.key else ""
    return StageOutput("dead-letters", key, orjson.dumps(body), made, TYPE, time_ms)


def described_without_secrets(
    value: bytes, rejected: EventRejected, decode: Callable[[bytes], object]
) -> EventRejected:
    """Describe why a record was rejected, without parts of secrets.

    Messages quote the beginning of a value, and half of a secret is not recognised as one. So a record with a secret is
    diagnosed again in its redacted form.
    """
    shown = redact_record(value)
    if shown is value:
        return rejected
    try:
        decode(shown)
    except EventRejected as again:
        return again
    except Exception:  # noqa: BLE001, S110 - a fault of the decoder itself, whose message may quote the record
        pass
    return EventRejected(rejected.reason, redact_text(rejected.path), "the record holds a secret where none may stand")


def original(letter: Mapping[str, Any], name: str) -> bytes | None:
    """Return the original `key` or `value` of a dead letter's record; None if it had none."""
    encoded = letter.get(f"{name}_base64")
    if encoded is not None:
        return b64decode(encoded)
    text = letter.get(name)
    return text.encode() if text is not None else None
