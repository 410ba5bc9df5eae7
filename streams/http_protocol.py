"""HTTP protocol for uvicorn that cuts slow and half-open requests (extra `web`).

uvicorn.run(app, http="trustfold.streams.http_protocol:ImpatientProtocol")
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADERS_S = 10.0
"""Seconds in which the headers of a request must have arrived."""


class ImpatientProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """Closes connections on which no request arrives in time; uvicorn would hold half a header for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client has connected: its first request is awaited."""
        super().connection_made(transport)
        self._cut = self.loop.call_later(HEADERS_S, transport.close)

    def data_received(self, data: bytes) -> None:
        """Bytes have come: the wait is over if they complete the headers of a request."""
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._cut.cancel()
        elif self._cut.cancelled():
            self._cut = self.loop.call_later(HEADERS_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._cut.cancel()
        super().connection_lost(exc)
