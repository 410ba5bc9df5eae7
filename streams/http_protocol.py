"""HTTP protocol for uvicorn that closes slow and half-open connections (extra `web`).

uvicorn.run(app, http="trustfold.streams.http_protocol:ImpatientProtocol")
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADERS_S = 10.0  # Seconds within which the headers of a request must arrive


class ImpatientProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """Closes connections without a request in time; uvicorn would keep incomplete headers open indefinitely."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._cut = self.loop.call_later(HEADERS_S, transport.close)

    def data_received(self, data: bytes) -> None:
        """Stop the timer if the bytes complete the headers of a request."""
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._cut.cancel()
        elif self._cut.cancelled():
            self._cut = self.loop.call_later(HEADERS_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._cut.cancel()
        super().connection_lost(exc)
