"""Runs the HTTP server of the embedded engine until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.applications import Starlette

from ...errors import ConfigError
from ..http_protocol import ImpatientProtocol

GRACE_S = 5
"""Seconds that running requests get when the server stops."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 selects any free one.

    Raises:
        ConfigError: the address is in use, unknown, or not permitted.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host}:{port} ({error}); choose another --port") from error
    # Accepted connections inherit TCP_NODELAY. Without it an answer waits 40 ms for the acknowledgement of its own
    # headers; asyncio sets it only on sockets that name their protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve(app: Starlette, listener: socket.socket, ready: Callable[[], None] = lambda: None) -> signal.Signals:
    """Serve until SIGINT or SIGTERM; running requests finish, streams end by `app.state.end_streams`.

    Returns the signal.
    """
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=GRACE_S, server_header=False,
        http=ImpatientProtocol,
    )  # fmt: skip
    return asyncio.run(_serve(_Server(config), app, listener, ready))


class _Server(uvicorn.Server):
    """Server that leaves signals to `_serve`: uvicorn would raise SIGTERM again after it has stopped."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(server: _Server, app: Starlette, listener: socket.socket, ready: Callable[[], None]) -> signal.Signals:
    received = signal.SIGTERM
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        nonlocal received
        received = number
        app.state.end_streams()
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    loop.call_soon(ready)
    await server.serve(sockets=[listener])
    return received


def address_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"
