"""Many connections on which no request ever ends, held open against a listener, and what that costs its process."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HALVES = (
    b"",
    b"G",
    b"POST /v1/events HTTP/1.1\r\nHost: 127",
    b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ",
    b"GET /healthz HTTP/1.1\r\n" + b"X-Long: " + b"a" * 500,
)
"""Beginnings of requests."""


@contextmanager
def held(address: tuple[str, int], count: int = 1500) -> Iterator[list[socket.socket]]:
    """Connections with half a request each; skips the test where this process may not open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * count + 200  # the listener may be in this process
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"this process may open {hard} files only, {wanted} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    connections = []
    try:
        for number in range(count):
            connection = socket.create_connection(address, timeout=60)
            connections.append(connection)
            connection.sendall(HALVES[number % len(HALVES)])
        yield connections
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_open(connection: socket.socket) -> bool:
    """Whether the other side has neither answered nor closed a connection."""
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        connection.settimeout(60)
    return False


def await_end(connections: list[socket.socket]) -> None:
    """Read until the other side has closed each connection; the reader gives up after thirty seconds of silence."""
    for connection in connections:
        try:
            while connection.recv(1024):  # an answer, perhaps; then the end
                pass
        except ConnectionResetError:
            pass


def open_files(pid: int) -> int:
    """Files and sockets that a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def memory_kib(pid: int) -> int:
    """Memory of a process in use, KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
