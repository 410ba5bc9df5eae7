"""Runs the HTTP server of the embedded engine until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from ...errors import ConfigError
from ..http_protocol import ImpatientProtocol

# Seconds after which a thread that folds gives way to the one that answers; Python's own 5 ms are waited for at each
# read and write of an answer
SWITCH_S = 0.001

GRACE_S = 5  # Seconds that running requests get when the server stops


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 selects any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        why = str(error).partition(" (while")[0]
        raise ConfigError(f"cannot listen on {host}:{port} ({why}); choose another --port") from error
    # Accepted connections inherit TCP_NODELAY. Without it an answer waits 40 ms for the acknowledgement of its own
    # headers; asyncio sets it only on sockets that name their protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@contextlib.contextmanager
def private_socket(store: Path) -> Iterator[list[socket.socket]]:
    """Listen beside a store that is held, at `STORE.sock`; nothing where its folder is not this user's alone.

    Who finds the socket in such a folder knows whose server it is, without a word of the server.
    """
    folder = os.open(store.resolve().parent, os.O_DIRECTORY | os.O_CLOEXEC)
    name = f"{store.name}.sock"
    try:
        about = os.fstat(folder)
        near = Path(f"/proc/self/fd/{folder}")  # a socket's path has a hundred characters at most
        if about.st_uid != os.geteuid() or about.st_mode & 0o077 or not near.exists():
            yield []
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(near / name))
        (near / name).chmod(0o600)
        listener.listen(1024)
        try:
            yield [listener]
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    finally:
        os.close(folder)


def serve(
    app: Starlette,
    listener: socket.socket,
    ready: Callable[[], None] = lambda: None,
    more: Sequence[socket.socket] = (),
) -> signal.Signals:
    """Serve until SIGINT or SIGTERM; running requests finish, streams end by `app.state.end_streams`.

    `more` are further listening sockets. Returns the signal.
    """
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=GRACE_S, server_header=False,
        http=ImpatientProtocol,
    )  # fmt: skip
    sys.setswitchinterval(SWITCH_S)
    return asyncio.run(_serve(_UvicornServer(config), app, [listener, *more], ready))


class _UvicornServer(uvicorn.Server):
    """Server that leaves signals to `_serve`: uvicorn would raise SIGTERM again after it has stopped."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(
    server: _UvicornServer, app: Starlette, listeners: list[socket.socket], ready: Callable[[], None]
) -> signal.Signals:
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
    await server.serve(sockets=listeners)
    return received


def address_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"
