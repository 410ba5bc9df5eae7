"""A network that is slow, lossy or gone between clients and a Kafka node: a TCP proxy with a delay for every chunk.

The node must advertise the proxy's port, so that clients never learn of the direct way.
"""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Self

CHUNK = 16 * 1024


class SlowNetwork:
    """A proxy in a thread of its own.

    Attributes:
        delay_s: added to every chunk, in both directions.
        jitter_s: up to so much more, by chance.
        cut: share of the chunks at which the connection is reset.
        swallow: whether everything is taken and nothing passed on: a network without an answer.
    """

    def __init__(self, port: int, target: int) -> None:
        """Pass on what comes to a port of 127.0.0.1 to another."""
        self.delay_s = self.jitter_s = self.cut = 0.0
        self.swallow = False
        self._port, self._target = port, target
        self._chance = random.Random(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow network", daemon=True)

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        serving = asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        """End every connection."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        ways = [
            asyncio.ensure_future(self._pass(reader, far_writer)),
            asyncio.ensure_future(self._pass(far_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.transport.abort()
            far_writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK):
            if self._chance.random() < self.cut:
                return
            if self.delay_s or self.jitter_s:
                await asyncio.sleep(self.delay_s + self._chance.random() * self.jitter_s)
            while self.swallow:  # noqa: ASYNC110 - set from another thread
                await asyncio.sleep(0.05)
            writer.write(chunk)
            await writer.drain()
