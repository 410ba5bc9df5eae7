"""`trustfold mcp-proxy`: a proxy in front of an MCP server."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from typing import Any

import click

from ..config import EnvironmentSettings
from ..errors import ConfigError
from .render import note
from .service import UserService


@click.command("mcp-proxy", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--server", metavar="URL", help="Address of a server over streamable HTTP, instead of COMMAND.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VARIABLE", help="HTTP header for it; repeatable.")
@click.option("--name", metavar="NAME", default="", help="Name of the server. [default: the name the server gives]")
@click.option(
    "--url",
    metavar="URL",
    help="A running `up`, or kafka://HOST:PORT. [env: TRUSTFOLD_URL; default: this user's own]",
)
@click.option("--workspace", metavar="ID", help="Workspace of the calls. [env: TRUSTFOLD_WORKSPACE]")
@click.option("--session", metavar="ID", help="Session of the calls. [default: a new one for each run]")
@click.option("--shadow", is_flag=True, help="Only publish; refuse nothing, ask nothing, send no nudges.")
def mcp_proxy(
    *, command: tuple[str, ...], server: str | None, headers: tuple[str, ...], url: str | None, **options: Any
) -> None:
    """Run an MCP server behind a guard: put `trustfold mcp-proxy --` in front of its COMMAND.

    Everything is forwarded unchanged. Calls of tools are published, refused while their circuit is open or their key
    blocked, and need approval while their key is escalated. Nudges are added as another block of text to a call's
    result. Without a running `up` it only forwards. If the server exits, it is restarted.

    In an MCP client's configuration:

    \b
        "command": "trustfold", "args": ["mcp-proxy", "--", "npx", "-y", "SERVER"]
    """  # noqa: D301 - click reads a backspace
    from ..integrations.mcp_upstream import NotStarted, child, environment_headers

    if bool(command) == bool(server):
        raise click.UsageError("give the server's COMMAND after --, or its address with --server")
    if server:
        from ..integrations.mcp_http import remote

        try:
            opened = remote(server, environment_headers(headers))
        except ValueError as error:
            raise ConfigError(str(error)) from error
    else:
        opened = child(command)
    try:
        code = asyncio.run(_run(opened, *_reached(url), **options))
    except NotStarted as failed:
        note(f"mcp-proxy: {failed}")
        code = failed.code
    raise SystemExit(code)


def _reached(url: str | None) -> tuple[str, str | None]:
    """Address and token (if known) of the `up` named by the option, else by the environment, else this user's own."""
    settings = EnvironmentSettings.from_env()
    if found := url or settings.url:
        return found, None
    service = UserService()
    if service.address and not settings.token:
        return f"http://{service.address}", service.token
    return f"http://{settings.host}:{settings.port}", None


async def _run(
    opened: Any,
    address: str,
    token: str | None,
    *,
    name: str,
    session: str | None,
    **settings: Any,
) -> int:
    """Serve standard input until it ends, the server ends, or a signal comes; returns the exit code.

    `opened` opens a connection to the server, whose `name` prefixes its tools' names. Without a `session` the calls are
    of a new one. `settings`: `workspace` and `shadow`.
    """
    from ..guard import ToolGuard
    from ..integrations.mcp_proxy import SETTINGS, McpProxy
    from ..integrations.mcp_upstream import STOP_S, RestartingServer, lines_of

    loop = asyncio.get_running_loop()
    chosen: dict[str, Any] = {"unattended": "deny", "shadow": settings["shadow"]}
    if settings["workspace"]:
        chosen["workspace_id"] = settings["workspace"]
    guard = await ToolGuard.connect(address, wait_s=0, token=token, **chosen)
    to_client = await _standard_output(loop)
    async with guard, guard.session(session, settings=SETTINGS) as of_calls:
        proxy = McpProxy(guard, of_calls, to_client, name=name)
        upstream = proxy.upstream = RestartingServer(opened, proxy.from_server)
        running = loop.create_task(upstream.run(proxy.on_up, proxy.on_down))
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)

        async def read() -> None:
            async for line in lines_of(await _standard_input(loop)):
                await proxy.from_client(line)
            await proxy.drained()

        reading, stopping = loop.create_task(read()), loop.create_task(stopped.wait())
        await asyncio.wait({running, reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await upstream.close()
        await asyncio.wait({running}, timeout=STOP_S)
        code = running.result() if running.done() else 0
        for task in (running, reading, stopping):
            task.cancel()
        await asyncio.gather(running, reading, stopping, return_exceptions=True)
        await proxy.close()
    return code


async def _standard_input(loop: asyncio.AbstractEventLoop) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=1 << 20)
    kind = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(0)):  # a file or /dev/null: no loop can wait for it
        reader.feed_data(sys.stdin.buffer.read())
        reader.feed_eof()
    else:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    return reader


async def _standard_output(loop: asyncio.AbstractEventLoop) -> Any:
    if stat.S_ISREG(os.fstat(1).st_mode):

        async def write(line: bytes) -> None:
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()

        return write
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def send(line: bytes) -> None:
        writer.write(line + b"\n")
        await writer.drain()

    return send
