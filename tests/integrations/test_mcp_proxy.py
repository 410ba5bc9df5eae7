"""A proxy in front of an MCP server: what passes as it came, is refused, asked about or added."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

import pytest
from command_line import environment, started, trustfold
from fixed_rules import SHIPPED_TO_OPEN
from hypothesis import given
from hypothesis import strategies as st
from trustfold.guard.testing import guard_for_tests, published, set_state
from trustfold.integrations import mcp_proxy
from trustfold.integrations.mcp_proxy import SETTINGS, McpProxy
from trustfold.integrations.mcp_upstream import RestartingServer, UpstreamGone, lines_of

INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
TOOL = "mcp__files__read"
KEY = f"{TOOL}|mcp_server=files"


class Server:
    """A scripted MCP server; each of its runs is a transport.

    Attributes:
        heard: every line that it was sent, over all of its runs.
        answer: what it says to a request; None: nothing.
    """

    def __init__(self) -> None:
        """Answer everything well."""
        self.heard: list[bytes] = []
        self.runs = 0
        self.answer: Callable[[dict[str, Any]], dict[str, Any] | None] = self.well
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue()

    @staticmethod
    def well(message: dict[str, Any]) -> dict[str, Any] | None:
        """Answer a request with a result."""
        if message["method"] == "initialize":
            return {"result": {"protocolVersion": "2025-06-18", "serverInfo": {"name": "files"}}}
        return {"result": {"content": [{"type": "text", "text": "ok"}]}}

    async def send(self, line: bytes) -> None:
        """Hear a line, and answer it."""
        self.heard.append(line)
        message = json.loads(line)
        if isinstance(message, dict) and "method" in message and "id" in message:
            answer = self.answer(message)
            if answer is not None:
                self.say({"jsonrpc": "2.0", "id": message["id"], **answer})

    def say(self, message: Any) -> None:
        """Send a message to the client."""
        self._out.put_nowait(json.dumps(message).encode())

    def end(self) -> None:
        """End this run."""
        self._out.put_nowait(None)

    async def lines(self) -> AsyncIterator[bytes]:
        """What it says."""
        while (line := await self._out.get()) is not None:
            yield line

    async def close(self) -> int | None:
        """End, with an exit code."""
        self.end()
        return 3

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Server]:
        """One run."""
        self.runs += 1
        self._out = asyncio.Queue()
        yield self


class Client:
    """The client's end of a proxy."""

    def __init__(self, *, capabilities: dict[str, Any] | None = None, **guard: Any) -> None:
        """Prepare proxy, guard and server."""
        self.server = Server()
        self.guard = guard_for_tests(unattended="deny", **guard)
        self.capabilities = capabilities or {}
        self.got: asyncio.Queue[bytes] = asyncio.Queue()
        self.proxy: McpProxy

    async def __aenter__(self) -> Self:
        self.session = self.guard.session("s", settings=SETTINGS).begin()
        self.proxy = McpProxy(self.guard, self.session, self.got.put)
        self.proxy.upstream = RestartingServer(self.server.opened, self.proxy.from_server, delay_s=0.01)
        self.running = asyncio.create_task(self.proxy.upstream.run(self.proxy.on_up, self.proxy.on_down))
        await self.ask("initialize", INITIALIZE | {"capabilities": self.capabilities}, 0)
        await self.say({"method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.proxy.upstream.close()
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.proxy.close()
        self.session.end()
        await self.guard.close()

    async def say(self, message: dict[str, Any]) -> bytes:
        """Send a message; returns its line."""
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        await self.proxy.from_client(line)
        return line

    async def next(self) -> dict[str, Any]:
        """The next message for the client."""
        return json.loads(await asyncio.wait_for(self.got.get(), 60))

    async def ask(self, method: str, params: dict[str, Any], number: int) -> dict[str, Any]:
        """Send a request and wait for the next message."""
        await self.say({"id": number, "method": method, "params": params})
        return await self.next()

    async def call(self, number: int, **args: Any) -> dict[str, Any]:
        """Call the tool."""
        return await self.ask("tools/call", {"name": "read", "arguments": args}, number)


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop go on until something holds."""
    for _ in range(5000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not hold after 5 s")


def texts(answer: dict[str, Any]) -> list[str]:
    """Texts of the blocks of a result."""
    return [block["text"] for block in answer["result"]["content"]]


async def test_a_call_passes_byte_for_byte_and_is_published() -> None:
    """The server gets the client's line and the client the server's; the event names tool, service and hints."""
    async with Client() as client:
        hints = {"tools": [{"name": "read", "annotations": {"readOnlyHint": True}}]}
        client.server.answer = lambda message: (
            {"result": hints} if message["method"] == "tools/list" else Server.well(message)
        )
        await client.ask("tools/list", {}, 1)
        line = await client.say({"id": "a", "method": "tools/call", "params": {"name": "read", "arguments": {"n": 1}}})
        assert await client.next() == {"jsonrpc": "2.0", "id": "a", **(Server.well({"method": ""}) or {})}
        assert client.server.heard[-1] == line
        (start,) = published(client.guard, "tool_call.started")
        assert (start["tool_name"], start["service"]) == (TOOL, "files")
        assert start["annotations"] == {"readOnlyHint": True}
        assert published(client.guard, "tool_call.finished")[0]["status"] == "success"


@given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_what_is_no_call_passes_untouched(value: Any) -> None:
    """Requests, notifications, answers and nonsense of either side."""

    async def scenario() -> None:
        async with Client() as client:
            for message in ({"method": "x/y", "params": value}, {"id": 1.5, "method": "x"}, {"a": value}, value):
                line = json.dumps(message).encode()
                await client.proxy.from_client(line)
                assert client.server.heard[-1] == line
                await client.proxy.from_server(line)
                assert await client.got.get() == line

    asyncio.run(scenario())


async def test_an_open_circuit_answers_in_place_of_the_server() -> None:
    """The model reads why, as the result of a failed call; the server is not asked."""
    async with Client() as client:
        client.proxy.name = "files"
        set_state(client.guard, "breaker", "service:files", state="open", open_until="2099-01-01T00:00:00.000Z")
        answer = await client.call(1)
        assert answer["result"]["isError"] is True
        assert "open" in texts(answer)[0]
        assert not any(b"tools/call" in line for line in client.server.heard)


@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_the_user_is_asked_through_the_client(action: str) -> None:
    """By elicitation; the answer is not passed on to the server."""
    async with Client(capabilities={"elicitation": {}}) as client:
        client.proxy.name = "files"
        set_state(client.guard, "trust", KEY, state="escalated", scope="key", reason="3 timeouts")
        question = await client.call(1)
        assert question["method"] == "elicitation/create"
        assert "3 timeouts" in question["params"]["message"]
        await client.say({"id": question["id"], "result": {"action": action}})
        answer = await client.next()
        assert answer["id"] == 1
        assert answer["result"].get("isError", False) is (action == "decline")
        assert not any(b"trustfold-" in line for line in client.server.heard)


async def test_who_cannot_be_asked_is_told_how_to_approve() -> None:
    """A client without elicitation."""
    async with Client() as client:
        client.proxy.name = "files"
        set_state(client.guard, "trust", KEY, state="escalated", scope="key")
        assert f"trustfold approve '{KEY}' --once" in texts(await client.call(1))[0]


async def test_a_dangerous_call_reaches_the_server_only_with_a_persons_word() -> None:
    """Told from its arguments, whatever the tool is called."""
    async with Client() as client:
        client.proxy.name = "pg"
        said = texts(await client.call(1, sql="DROP TABLE users"))[0]
        assert "`mcp__pg__read` would drop a table" in said
        assert said.count("trustfold approve 'mcp__pg__read|danger=database|mcp_server=pg' --once") == 1
        assert not any(b"tools/call" in line for line in client.server.heard)


async def test_a_nudge_is_a_further_block_and_nothing_else_changes() -> None:
    """Numbers beyond 64 bits and structured content stay what they are; a tool has the name that the server gave it."""
    async with Client() as client:
        result = {"content": [{"type": "text", "text": "same"}], "structuredContent": {"n": 2**70, "x": 0.1}}
        client.server.answer = lambda _: {"result": result}
        answers = [await client.call(number, path="a.txt") for number in range(1, 6)]
        assert answers[0]["result"] == result
        told = next(answer for answer in answers if len(texts(answer)) > 1)
        assert told["result"]["structuredContent"] == result["structuredContent"]
        assert told["result"]["content"][0] == result["content"][0]
        assert texts(told)[1].startswith("(hint) read was called 3 times")
        carried = [event["nudge_id"] for event in published(client.guard) if event["type"] == "nudge.delivered"]
        assert carried == [one.id for one in client.session.inbox.history]


async def test_a_pause_stops_one_call_with_its_reason() -> None:
    """The model reads the reason, once, and that the call was not made; the next call is made."""
    async with Client() as client:
        for number in range(1, 7):
            await client.call(number, path="a")
        assert client.session.paused
        client.proxy._named = True  # and the model knows it by this name
        reason = client.session.inbox.pause_reason
        client.session.messages()
        answer = await client.call(7, path="a")
        assert texts(answer) == [f"trustfold: {reason}", "This call was not made."]
        assert "isError" not in (await client.call(8, path="b"))["result"]


async def test_the_same_call_after_a_while_is_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy lives for days, and is not told that its user has spoken: silence stands for it."""
    monkeypatch.setattr(mcp_proxy, "QUIET_S", 0.0)
    async with Client() as client:
        answers = [await client.call(number, n=1) for number in range(8)]
        assert [texts(answer) for answer in answers] == [["ok"]] * 8
        kinds = [event["type"] for event in published(client.guard)]
        assert kinds.count("user.message") == 7


async def test_shadow_changes_nothing() -> None:
    """Blocked, nudged, paused: everything passes, and is published."""
    async with Client(shadow=True) as client:
        client.proxy.name = "files"
        set_state(client.guard, "trust", KEY, state="blocked", scope="key")
        client.session.inbox.paused = True
        for number in range(6):
            assert texts(await client.call(number, path="a")) == ["ok"]
        assert "nudge.delivered" not in {event["type"] for event in published(client.guard)}


async def test_a_server_that_ends_is_answered_for_and_started_again() -> None:
    """Calls and other requests get an error at once; the new run is introduced with the client's own words."""
    async with Client() as client:
        client.server.answer = lambda _: None
        await client.say({"id": 1, "method": "tools/call", "params": {"name": "read"}})
        await client.say({"id": 2, "method": "resources/list"})
        await asyncio.sleep(0)
        client.server.answer = Server.well
        client.server.end()
        answers = {answer["id"]: answer for answer in (await client.next(), await client.next())}
        assert "has ended" in texts(answers[1])[0]
        assert "has ended" in answers[2]["error"]["message"]
        await until(lambda: client.server.runs == 2 and b"initialized" in client.server.heard[-1])
        again = [json.loads(line) for line in client.server.heard[-2:]]
        assert again[0]["params"] == INITIALIZE
        assert again[1]["method"] == "notifications/initialized"
        assert texts(await client.call(3)) == ["ok"], "and its answer to that reaches no client"
        assert published(client.guard, "tool_call.finished")[0]["status"] != "success"


async def test_a_cancelled_call_is_neither_good_nor_bad() -> None:
    """The cancellation reaches the server, and the call is published as cancelled."""
    async with Client() as client:
        client.server.answer = lambda _: None
        await client.say({"id": 1, "method": "tools/call", "params": {"name": "read"}})
        await until(lambda: b"tools/call" in client.server.heard[-1])
        line = await client.say({"method": "notifications/cancelled", "params": {"requestId": 1}})
        assert client.server.heard[-1] == line
        await until(lambda: bool(published(client.guard, "tool_call.finished")))
        assert published(client.guard, "tool_call.finished")[0]["status"] == "cancelled"


async def test_failed_results_never_hold_the_server() -> None:
    """What a tool says of something behind it is an answer of the server; errors of the protocol hold it."""
    async with Client() as client:
        failed = {"isError": True, "content": [{"type": "text", "text": "connect ECONNREFUSED 10.0.0.1:5432"}]}
        client.server.answer = lambda _: {"result": failed}
        for number in range(8):
            await client.call(number, n=number)
        assert not [one for one in client.guard.view.records() if one.scope == "service"]
        client.server.answer = lambda _: {"error": {"code": -32000, "message": "Connection reset by peer"}}
        for number in range(8, 8 + SHIPPED_TO_OPEN):
            await client.call(number, n=number)
        assert [(one.kind, one.state) for one in client.guard.view.records() if one.scope == "service"] == [
            ("trust", "escalated")
        ]


async def test_errors_of_the_protocol_pass_and_count() -> None:
    """The client gets the server's own error."""
    async with Client() as client:
        error = {"code": -32602, "message": "unknown tool"}
        client.server.answer = lambda _: {"error": error}
        assert (await client.call(1))["error"] == error
        assert published(client.guard, "tool_call.finished")[0]["status"] != "success"


async def test_calls_in_a_batch_are_guarded_each() -> None:
    """Batches are of an older version of the protocol."""
    async with Client() as client:
        calls = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "read"}} for n in (1, 2)]
        await client.proxy.from_client(json.dumps(calls).encode())
        assert {(await client.next())["id"] for _ in calls} == {1, 2}
        assert len(published(client.guard, "tool_call.started")) == 2


@given(st.lists(st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b"")), max_size=6))
def test_lines_come_whole_however_they_are_cut(lines: list[bytes]) -> None:
    """Of any length; empty ones are left out."""

    async def scenario() -> list[bytes]:
        reader = asyncio.StreamReader()
        for byte in b"\n".join(lines):
            reader.feed_data(bytes([byte]))
        reader.feed_eof()
        return [line async for line in lines_of(reader)]

    assert asyncio.run(scenario()) == [line for line in lines if line]


async def test_a_server_that_does_not_run_says_when_it_will() -> None:
    """Whoever sends learns it at once."""
    server = Server()
    upstream = RestartingServer(server.opened, lambda _: None, delay_s=30)
    running = asyncio.create_task(upstream.run(lambda _: None, lambda _: True))
    await upstream.send(b"{}")
    server.end()
    await asyncio.sleep(0.01)
    with pytest.raises(UpstreamGone, match="again in"):
        await upstream.send(b"{}")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


SCRIPT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        name = {"serverInfo": {"name": "tiny"}, "protocolVersion": "2025-06-18", "capabilities": {}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": name}), flush=True)
"""


def run(tmp_path: Path, *command: str, lines: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the proxy as an MCP client would, with nobody to talk to about it."""
    return trustfold("mcp-proxy", "--url", "http://127.0.0.1:9", "--", *command, cwd=tmp_path, stdin=lines)


def test_the_command_gives_the_same_bytes_as_the_server_alone(tmp_path: Path) -> None:
    """Input that ends ends the server; what it had still to say comes through."""
    requests = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": INITIALIZE | {"name": "x"}}).encode() + b"\n"
        for n, method in enumerate(["initialize", "tools/list", "tools/call", "ping"])
    )
    server = [sys.executable, "-c", SCRIPT]
    alone = subprocess.run(server, input=requests, capture_output=True, timeout=60, check=True)
    through = run(tmp_path, *server, lines=requests)
    assert through.returncode == 0, through.stderr
    assert sorted(through.stdout.splitlines()) == sorted(alone.stdout.splitlines())


def test_an_input_that_is_nothing_ends_it(tmp_path: Path) -> None:
    """Started by hand or by a service without an input: it ends as at the end of a pipe."""
    command = [sys.executable, "-m", "trustfold", "mcp-proxy", "--", sys.executable, "-c", SCRIPT]
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path, env=environment(), timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_an_address_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """In one line, with exit code 1."""
    words = ("mcp-proxy", "--url", "http://127.0.0.1:9", "--server", "http://127.0.0.1:9/mcp")
    pipe = subprocess.PIPE
    with started(*words, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as lost:
        assert lost.stdin is not None
        assert lost.stderr is not None
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
        lost.stdin.write(json.dumps(message).encode() + b"\n")
        lost.stdin.flush()
        assert lost.wait(60) == 1
        told = lost.stderr.read()
    assert b"http://127.0.0.1:9/mcp cannot be reached" in told
    assert b"Traceback" not in told


def test_a_command_that_is_not_there_says_so(tmp_path: Path) -> None:
    """With the exit code of a shell; one that fails at once ends with its own."""
    missing = run(tmp_path, "no-such-server")
    assert missing.returncode == 127
    assert b"no-such-server" in missing.stderr
    failing = run(tmp_path, sys.executable, "-c", "raise SystemExit(7)")
    assert failing.returncode == 7
