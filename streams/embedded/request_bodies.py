"""Parses request bodies to records: limits, compression, one object or one per line."""

from __future__ import annotations

import asyncio
import zlib

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request

BODY_S = 30.0
"""Seconds within which a body must arrive: 16 MiB in half a minute is 4 Mbit/s."""

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Largest decompressed body in bytes; one body is one transaction. Larger files are sent in pieces."""


async def read_body(request: Request) -> bytes:
    """Return the decompressed body.

    Raises:
        HTTPException: 408 too slow, 413 too large, 415 unknown compression, 400 broken compression.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "gzip"}:
        raise HTTPException(415, f"content-encoding {encoding!r} is unknown; send gzip, or none")
    unpack = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    body = bytearray()
    stream = aiter(request.stream())
    until = asyncio.get_running_loop().time() + BODY_S
    while True:
        try:
            async with asyncio.timeout_at(until):
                chunk = await anext(stream)
        except StopAsyncIteration:
            break
        except TimeoutError as late:
            raise HTTPException(408, f"the body did not arrive within {BODY_S:.0f} s; send it again") from late
        try:
            body += unpack.decompress(chunk, MAX_BODY_BYTES + 1 - len(body)) if unpack else chunk
        except zlib.error as error:
            raise HTTPException(400, f"the body is not gzip: {error}") from error
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"larger than {MAX_BODY_BYTES >> 20} MiB; send it in pieces")
    if unpack is not None and not unpack.eof:
        raise HTTPException(400, "the gzip body ends early; send it again")
    return bytes(body)


def records_of(body: bytes, content_type: str) -> list[bytes]:
    """Split a body into records: one per line, or, declared as `application/json`, one object over several lines."""
    if content_type.partition(";")[0].strip().lower() == "application/json" and _is_json(body):
        return [body.strip()]
    return [line for line in map(bytes.strip, body.split(b"\n")) if line]


def _is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True
