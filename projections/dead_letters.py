"""Dead letters: what could not be processed, kept whole, with the reason (design 2, Bad input)."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import orjson

from ..schemas.codec import rfc3339
from ..schemas.envelope import output_id
from ..schemas.errors import EventRejected
from .emit import SCHEMA_VERSION, Output

if TYPE_CHECKING:
    from .processor import SourceRecord

TYPE = "dead_letter"


def dead_letter(record: SourceRecord, topic: str, partition: int, rejected: EventRejected) -> Output:
    """The dead letter of one record: original bytes and place, reason code, JSON path and message.

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
        "path": rejected.path,
        "message": rejected.message,
    }
    if time_ms:
        body["time"] = rfc3339(time_ms)
    for name, original in (("key", record.key), ("value", record.value)):
        if original is None:
            continue
        try:
            body[name] = original.decode()
        except UnicodeDecodeError:
            body[f"{name}_base64"] = b64encode(original).decode()
    key = record.key.decode(errors="replace") if record.key else ""
    return Output("dead-letters", key, orjson.dumps(body), made, TYPE, time_ms)
