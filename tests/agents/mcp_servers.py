"""Puts `trustfold mcp-proxy` in front of real MCP servers and compares what a client gets with what the server gives.

A client of the MCP SDK makes the same calls over stdio both ways, one here and one there in turn. Where nothing is
wrong every answer must be the same; where the same call brings the same thing three times the proxy must add its nudge
and nothing else, which shows that it works. A server that cannot be installed here is skipped with the reason.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

CALLS = 200
"""Calls that are timed each way; no two are the same, so that nothing forms a loop."""

DELIVERY_S = 0.5
"""Seconds that a nudge may take to reach the proxy."""


@dataclass(frozen=True)
class Server:
    """One MCP server.

    Attributes:
        name: how it is called here.
        package: its package with the version.
        command: what starts it: below `node_modules/.bin` of npm, else below `bin` of an environment of its own.
        words: its arguments; `@folder@` is a folder with files.
        timed: the call whose time is taken, by its number.
        others: further calls, good and bad: each is made once.
        from_npm: which registry has it.
    """

    name: str
    package: str
    command: str
    words: tuple[str, ...]
    timed: Callable[[int], tuple[str, dict[str, Any]]]
    others: tuple[tuple[str, dict[str, Any]], ...]
    from_npm: bool = True


_ZONES = sorted(one for one in available_timezones() if "/" in one)


def _zone(number: int) -> tuple[str, dict[str, Any]]:
    return "convert_time", {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": _ZONES[number]}


SERVERS = (
    Server(
        "everything",
        "@modelcontextprotocol/server-everything",
        "mcp-server-everything",
        ("stdio",),
        lambda number: ("echo", {"message": f"number {number}"}),
        (
            ("get-sum", {"a": 2, "b": 3}),
            ("get-tiny-image", {}),
            ("get-structured-content", {"location": "New York"}),
            ("get-annotated-message", {"messageType": "success", "includeImage": True}),
            ("trigger-long-running-operation", {"duration": 1, "steps": 4}),
            ("trigger-sampling-request", {"prompt": "Say it", "maxTokens": 10}),
            ("trigger-elicitation-request", {}),
            ("get-sum", {"a": "two"}),
            ("no-such-tool", {}),
        ),
    ),
    Server(
        "filesystem",
        "@modelcontextprotocol/server-filesystem",
        "mcp-server-filesystem",
        ("@folder@",),
        lambda number: ("read_text_file", {"path": f"@folder@/{number}.txt"}),
        (
            ("list_directory", {"path": "@folder@"}),
            ("get_file_info", {"path": "@folder@/1.txt"}),
            ("write_file", {"path": "@folder@/new.txt", "content": "\u00e9\U0001f600"}),
            ("read_text_file", {"path": "@folder@/missing.txt"}),
            ("read_text_file", {"path": "/etc/hostname"}),
        ),
    ),
    Server(
        "time",
        "mcp-server-time",
        "mcp-server-time",
        ("--local-timezone", "UTC"),
        _zone,
        (("get_current_time", {"timezone": "Nowhere/Never"}), ("convert_time", {"time": "25:00"})),
        from_npm=False,
    ),
)


def install(server: Server, packages: Path) -> tuple[Path | None, str]:
    """Install a server; returns what starts it, or why it cannot be installed."""
    packages.mkdir(parents=True, exist_ok=True)
    if server.from_npm:
        start = packages / "node_modules" / ".bin" / server.command
        npm = shutil.which("npm")
        if npm is None:
            return None, "npm is not installed here"
        (packages / "package.json").exists() or (packages / "package.json").write_text('{"private": true}')
        words = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", server.package]
    else:
        place = packages / server.name
        start = place / "bin" / server.command
        if not start.exists():
            venv.create(place, with_pip=True)
        words = [str(place / "bin" / "pip"), "--disable-pip-version-check", "install", "--quiet", server.package]
    if start.exists():
        return start, ""
    done = subprocess.run(words, cwd=packages, capture_output=True, text=True, check=False)
    return (start, "") if start.exists() else (None, done.stderr.strip()[-200:])


@contextmanager
def running(home: Path) -> Iterator[dict[str, str]]:
    """A `trustfold up` for one home, and the environment in which the proxy finds it."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    environ = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environ |= {"HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "NO_COLOR": "1"}
    up = [sys.executable, "-m", "trustfold", "up"]
    subprocess.run([*up, "--detach"], env=environ, cwd=home, check=True, capture_output=True)
    try:
        yield environ
    finally:
        subprocess.run([*up, "--stop"], env=environ, cwd=home, check=False, capture_output=True)


class Client:
    """A client of one server, by the SDK.

    Attributes:
        heard: progress and questions, in the order in which they came.
    """

    def __init__(self) -> None:
        """Connect with `connected`."""
        self.heard: list[Any] = []
        self.session: ClientSession

    @asynccontextmanager
    async def connected(self, words: list[str], environ: dict[str, str], cwd: Path) -> AsyncIterator[Any]:
        """Run a server; gives its introduction."""
        command, *arguments = words
        parameters = StdioServerParameters(command=command, args=arguments, env=environ, cwd=cwd)
        async with (
            stdio_client(parameters) as (read, write),
            ClientSession(
                read, write, sampling_callback=self._sample, elicitation_callback=self._elicit
            ) as self.session,
        ):
            yield _plain(await self.session.initialize())

    async def lists(self) -> list[Any]:
        """Everything that the server offers."""
        able = self.session.server_capabilities
        asked = [self.session.list_tools()]
        if able is not None and able.prompts:
            asked.append(self.session.list_prompts())
        if able is not None and able.resources:
            asked += [self.session.list_resources(), self.session.list_resource_templates()]
        return [_plain(await one) for one in asked]

    async def call(self, tool: str, args: dict[str, Any]) -> tuple[Any, float]:
        """Call a tool; returns its result, or the error, and the milliseconds that it took."""
        began = time.perf_counter()
        try:
            result = _plain(await self.session.call_tool(tool, args, progress_callback=self._progress))
        except Exception as error:  # noqa: BLE001 - to be compared, whatever it is
            result = [type(error).__name__, str(error)]
        return result, (time.perf_counter() - began) * 1000

    async def _progress(self, done: float, total: float | None, message: str | None) -> None:
        self.heard.append([done, total, message])

    async def _sample(self, _context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.heard.append(_plain(params))
        content = types.TextContent(type="text", text="It.")
        return types.CreateMessageResult(role="assistant", content=content, model="fake")

    async def _elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.heard.append(_plain(params))
        return types.ElicitResult(action="decline")


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True)


async def compare(server: Server, start: Path, environ: dict[str, str], home: Path) -> tuple[list[str], str]:
    """Make the same calls both ways; returns what differs, and the times."""
    folder = home / "files"
    folder.mkdir(exist_ok=True)
    for number in range(CALLS):
        (folder / f"{number}.txt").write_text(f"file {number}")

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(one) for name, one in value.items()}
        return value.replace("@folder@", str(folder)) if isinstance(value, str) else value

    alone = [str(start), *map(filled, server.words)]
    proxied = [sys.executable, "-m", "trustfold", "mcp-proxy", "--", *alone]
    wrong: list[str] = []

    def same(what: str, one: Any, other: Any) -> None:
        if one != other:
            wrong.append(f"{what}: {str(one)[:200]} alone, {str(other)[:200]} through the proxy")

    async with AsyncExitStack() as stack:
        bare, guarded = Client(), Client()
        introductions = [
            await stack.enter_async_context(client.connected(words, environ, home))
            for client, words in ((bare, alone), (guarded, proxied))
        ]
        same("initialize", *introductions)
        same("lists", await bare.lists(), await guarded.lists())
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(CALLS):
            tool, args = server.timed(number)
            results = []
            for place, client in enumerate((bare, guarded)):
                result, taken = await client.call(tool, filled(args))
                results.append(result)
                times[place].append(taken)
            same(f"{tool} {args}", *results)
        for tool, args in server.others:
            results = [(await client.call(tool, filled(args)))[0] for client in (bare, guarded)]
            same(f"{tool} {args}", *results)
        same("progress, sampling and elicitation", bare.heard, guarded.heard)
        tool, args = server.timed(CALLS // 2)
        repeated = []
        for _ in range(5):
            repeated.append((await guarded.call(tool, filled(args)))[0])
            await asyncio.sleep(DELIVERY_S)
        nudged = [one for one in repeated if "same result" in str(one)]
        if not nudged or nudged[0] | {"content": nudged[0]["content"][:-1]} != repeated[0]:
            wrong.append(f"the proxy is not at work: {str(repeated[-1])[:300]}")
    medians = [statistics.median(one) for one in times]
    return wrong, f"p50 {medians[0]:.2f} ms alone, {medians[1]:.2f} ms through the proxy"


def trial(packages: Path, home: Path) -> Iterator[tuple[str, str, str]]:
    """Try each server: how it came out (`ok`, `skipped`, `FAILED`), its name, and what there is to say."""
    with running(home) as environ:
        for server in SERVERS:
            start, reason = install(server, packages)
            if start is None:
                yield "skipped", server.name, reason
                continue
            wrong, told = asyncio.run(compare(server, start, environ, home))
            calls = CALLS + len(server.others)
            yield ("FAILED", server.name, "; ".join(wrong)) if wrong else ("ok", server.name, f"{calls} calls, {told}")
