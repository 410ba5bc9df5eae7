"""Runs of clients: what a client leaves open is closed."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from contextlib import closing, suppress

import pytest
from trustfold.streams.kafka.access import run_client
from trustfold.streams.kafka.records import ended


@pytest.mark.parametrize("fails", [False, True])
def test_a_connection_that_a_client_leaves_open_is_closed(*, fails: bool) -> None:
    """Whether the client ends well or not, the other side sees the end and nothing is left to be collected."""

    async def leave_open(port: int) -> None:
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", port)
        if fails:
            raise ConnectionRefusedError

    with closing(socket.create_server(("127.0.0.1", 0))) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            run_client(leave_open(server.getsockname()[1]))
        except ConnectionRefusedError:
            assert fails
        gc.collect()
        with closing(server.accept()[0]) as other:
            other.settimeout(60)
            with suppress(ConnectionResetError):  # an aborted connection may end so
                assert other.recv(1) == b""


def test_a_task_that_loses_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """`wait_for` of Python 3.11 loses one that comes together with the answer."""
    monkeypatch.setattr("trustfold.streams.kafka.records.AGAIN_S", 0.01)

    async def follow(lost: int) -> None:
        for _ in range(lost):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        await asyncio.sleep(60)

    async def stop() -> bool:
        task = asyncio.create_task(follow(3))
        await asyncio.sleep(0)
        await asyncio.wait_for(ended(task), 60)
        return task.cancelled()

    assert run_client(stop())
