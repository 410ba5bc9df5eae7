"""MCP servers behind a proxy: a child process over stdio; `mcp_http` has those at an address.

Both carry whole JSON-RPC messages as lines of bytes. A server that ends is restarted with a growing delay; callbacks
report when it has ended and when it runs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0
STEADY_S = 60.0  # Run time after which the restart delay is reset to the first delay

# Time for a server to end after its input is closed; then it is terminated, and killed after the same time again
STOP_S = 5.0

CHUNK = 1 << 16


class UpstreamGone(ConnectionError):
    """The server behind the proxy is not running."""


class NotStarted(Exception):
    """The server could not be started at all.

    Attributes:
        code: exit code for the proxy itself, as a shell would give it.
    """

    def __init__(self, message: str, code: int) -> None:
        """Create it with a reason and the exit code of the proxy."""
        super().__init__(message)
        self.code = code


class ServerRun(Protocol):
    """One run of a server."""

    async def send(self, line: bytes) -> None:
        """Send one message.

        Raises:
            UpstreamGone: the server has ended.
        """

    def lines(self) -> AsyncIterator[bytes]:
        """Yield the server's messages until it ends."""

    async def close(self) -> int | None:
        """End the server and wait for it; return its exit code, None without one."""


Opener = Callable[[], "contextlib.AbstractAsyncContextManager[ServerRun]"]


class RestartingServer:
    """Server that is restarted when it ends.

    Attributes:
        transport: connection to the running server; None while it is not running.
        down_until: time of the next start on the loop's clock, seconds; 0 while it runs.
        closing: `close` was called, so that it is not restarted.
    """

    def __init__(self, opened: Opener, on_line: Callable[[bytes], Any], *, delay_s: float = FIRST_DELAY_S) -> None:
        """Prepare a server.

        Args:
            opened: starts the server.
            on_line: called with each message of the server; may return an awaitable.
            delay_s: seconds before the first restart; doubled by each further one.
        """
        self._opened = opened
        self._on_line = on_line
        self._first_delay_s = delay_s
        self.transport: ServerRun | None = None
        self.down_until = 0.0
        self.closing = False
        self._begun = asyncio.Event()

    async def run(self, on_up: Callable[[bool], Any], on_down: Callable[[int | None], bool]) -> int:
        """Keep the server running until it is closed; return its last exit code, 0 without one.

        Args:
            on_up: called after each start; its argument is False for the first one.
            on_down: called with the exit code when the server has ended; returns whether to restart it.
        """
        loop = asyncio.get_running_loop()
        delay, runs, code = self._first_delay_s, 0, None
        while True:
            began = loop.time()
            code, fault = None, ""
            try:
                async with self._opened() as transport:
                    self.transport, self.down_until = transport, 0.0
                    await _maybe(on_up(runs > 0))
                    runs += 1
                    self._begun.set()
                    async for line in transport.lines():
                        await _maybe(self._on_line(line))
                    code = await transport.close()
            except NotStarted:
                if not runs:
                    raise
            except (OSError, UpstreamGone) as error:
                fault = str(error)
            self.transport = None
            if self.closing:
                if fault:
                    raise NotStarted(fault, 1)
                break
            delay = self._first_delay_s if loop.time() - began > STEADY_S else delay
            self.down_until = loop.time() + delay
            if not on_down(code):
                if code is None and fault:
                    raise NotStarted(fault, 1)
                break
            await asyncio.sleep(delay)
            delay = min(MAX_DELAY_S, 2 * delay)
        self._begun.set()
        return code or 0

    async def send(self, line: bytes) -> None:
        """Send one message; the first ones wait for its first run."""
        await self._begun.wait()
        if self.transport is None:
            left = max(0.0, self.down_until - asyncio.get_running_loop().time())
            raise UpstreamGone(f"the MCP server is not running; it is started again in {left:.0f} s")
        try:
            await self.transport.send(line)
        except (OSError, UpstreamGone) as error:
            raise UpstreamGone("the MCP server has ended while a message was sent to it") from error

    async def close(self) -> None:
        """End the server for good."""
        self.closing = True
        if self.transport is not None:
            await self.transport.close()


async def _maybe(value: Any) -> None:
    if asyncio.iscoroutine(value):
        await value


async def lines_of(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of any length without their line ends; the rest at the end of the stream is a line, too."""
    rest = bytearray()
    while chunk := await reader.read(CHUNK):
        searched = len(rest)
        rest += chunk
        if rest.find(b"\n", searched) < 0:
            continue
        *whole, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in whole:
            if line := line.removesuffix(b"\r"):
                yield line
    if rest:
        yield bytes(rest)


class ChildProcess:
    """Server as a child process over its standard input and output; it shares the proxy's standard error."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Use a process that was started with pipes."""
        self._process = process
        self._sending = asyncio.Lock()

    async def send(self, line: bytes) -> None:
        """Write one line."""
        writer = self._process.stdin
        assert writer is not None  # noqa: S101 - it was started with pipes
        async with self._sending:
            writer.write(line + b"\n")
            await writer.drain()

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines of its output."""
        assert self._process.stdout is not None  # noqa: S101 - as above
        async for line in lines_of(self._process.stdout):
            yield line

    async def close(self) -> int | None:
        """Close its input; if it does not end, terminate it, then kill it."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        for end in (process.terminate, process.kill, None):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(process.wait(), STOP_S)
            if end is not None:
                with contextlib.suppress(ProcessLookupError):
                    end()
        return None


def child(command: Sequence[str]) -> Opener:
    """Return an opener that starts a command as a server."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[ServerRun]:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=CHUNK)
        except FileNotFoundError as error:
            raise NotStarted(f"{command[0]}: no such command", 127) from error
        except OSError as error:
            raise NotStarted(f"{command[0]}: {error.strerror or error}", 126) from error
        transport = ChildProcess(process)
        try:
            yield transport
        finally:
            await transport.close()

    return opened


def environment_headers(names: Sequence[str]) -> dict[str, str]:
    """Return headers given as `NAME=VARIABLE`, with the variable's value; so no secret is on a command line."""
    found = {}
    for one in names:
        name, equals, variable = one.partition("=")
        if not name or not equals or variable not in os.environ:
            raise ValueError(f"--header {one!r}: use NAME=VARIABLE with a variable of the environment that is set")
        found[name] = os.environ[variable]
    return found
