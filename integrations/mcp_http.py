"""Connection of a proxy to an MCP server over streamable HTTP, with the MCP SDK (extra `mcp`)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter
from pydantic import ValidationError

from .mcp_upstream import Opener, ServerRun, UpstreamGone


class HttpSession:
    """MCP server over streamable HTTP, by the streams of the MCP SDK."""

    def __init__(self, reading: Any, writing: Any) -> None:
        """Use the streams of one session."""
        self._reading, self._writing = reading, writing

    async def send(self, line: bytes) -> None:
        """Post one message."""
        try:
            message = jsonrpc_message_adapter.validate_json(line)
        except ValidationError:
            return  # no message of the protocol; a server over stdio would drop it, too
        try:
            await self._writing.send(SessionMessage(message))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise UpstreamGone("the session is closed") from error

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the server's messages."""
        async for item in self._reading:
            if not isinstance(item, Exception):
                yield item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()

    async def close(self) -> int | None:
        """End the session."""
        await self._writing.aclose()
        return None


def remote(url: str, headers: dict[str, str]) -> Opener:
    """Open a session with a server at an address."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[ServerRun]:
        try:
            async with (
                httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30.0, read=300.0)) as client,
                streamable_http_client(url, http_client=client) as (reading, writing),
            ):
                yield HttpSession(reading, writing)
        except BaseExceptionGroup as group:
            lost, others = group.split((OSError, httpx2.HTTPError))
            if lost is None or others is not None:
                raise
            first: BaseException = lost
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise UpstreamGone(f"{url} cannot be reached: {first}") from None

    return opened
