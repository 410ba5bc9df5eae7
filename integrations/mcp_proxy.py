"""Proxy in front of an MCP server: `trustfold mcp-proxy -- COMMAND…`.

It copies the lines between an MCP client and a server unchanged, except tool calls: each goes through a guard, which
publishes it, refuses it while its circuit is open or its key blocked, and requires approval while its key is escalated.
A nudge is added as a text block to the result of a call. All other messages pass unchanged: progress, sampling,
elicitation, changed lists, extensions of the protocol.

A server that ends is restarted and gets the client's `initialize` again; requests meanwhile are answered with an error
(docs/connect.md, MCP proxy).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from ..guard import ToolGuard
from ..guard.permission import CONTEXT_KEY, DANGEROUS, PermissionWrapper
from ..guard.result import ToolResult, told_to_model
from ..guard.session import GuardSession
from ..guard.settings import RetryPolicy
from ..projections.calls.keys import in_quotes
from ..schemas.settings import SettingsOverrides
from .mcp_upstream import RestartingServer, UpstreamGone

log = logging.getLogger(__name__)

Message = dict[str, Any]
Send = Callable[[bytes], Awaitable[None]]

ASKED = "trustfold-"  # Prefix of the ids of the proxy's own requests
SERVER_GONE = -32000  # JSON-RPC error code of the answer to requests while the server does not run
ASK_TIMEOUT_S = 3600.0  # Seconds that a person has for an answer
DRAIN_S = 5.0  # Seconds in which calls must reach the server after the client has closed its side

MAX_NAME = 120

QUIET_S = 120.0
"""Seconds without a call after which the next call is treated as the start of a new user request.

The protocol has no message for user input; within a turn, models hardly ever pause for so long.
"""

# A proxy sees neither turns nor user messages, so counts that only these reset would never be reset
SETTINGS = SettingsOverrides(
    rules={"behaviour": {name: {"enabled": False} for name in ("call_budget", "stalled_turn")}}
)


class JsonRpcError(Exception):
    """Answer of the server to a call that is an error of the protocol.

    Attributes:
        code: code of the error, as text.
    """

    def __init__(self, error: Any) -> None:
        """Create it from the `error` of a response."""
        body = error if isinstance(error, dict) else {}
        super().__init__(str(body.get("message") or "JSON-RPC error"))
        self.code = str(body.get("code", ""))


class McpProxy:
    """Passes the messages between one client and one server, and guards the calls of tools.

    Attributes:
        name: name of the server, the `service` of its calls; by default from its answer to `initialize`.
        upstream: connection to the server.
    """

    def __init__(self, guard: ToolGuard, session: GuardSession, to_client: Send, *, name: str = "") -> None:
        """Create a proxy; set `upstream` before the first message.

        Args:
            guard: guard of the tool calls; its `permission` is replaced.
            session: session of all calls.
            to_client: sends a line to the client.
            name: name of the server, as the client has it; empty: as it names itself.
        """
        self.name = name
        self._named = bool(name)
        self.upstream: RestartingServer
        self._guard = guard
        self._session = session
        self._to_client = to_client
        self._calls: dict[str | int, asyncio.Task[None]] = {}
        self._unsent: dict[str | int, asyncio.Future[None]] = {}
        self._answers: dict[str | int, asyncio.Future[tuple[bytes, Message]]] = {}
        self._waiting: dict[str | int, str] = {}
        self._questions: dict[str, asyncio.Future[Message]] = {}
        self._of_server: set[str | int] = set()
        self._asked = 0
        self._initialize: bytes = b""
        self._initialized: bytes = b""
        self._can_ask = False
        self._known: set[str] = set()
        self._last_call = math.inf
        guard.permission = PermissionWrapper(None, ask=self._ask)

    # --- from the client ----------------------------------------------------------------------------------------------

    async def from_client(self, line: bytes) -> None:
        """Process one line of the client."""
        message = _parsed(line)
        if isinstance(message, list):  # a batch of an older version of the protocol
            if any(_is_call(one) for one in message):
                for one in message:
                    await self._from_client(json.dumps(one).encode(), one)
                return
            message = None
        await self._from_client(line, message)

    async def _from_client(self, line: bytes, message: Any) -> None:
        if not isinstance(message, dict):
            await self._forward(line)
            return
        method, number = message.get("method"), message.get("id")
        if method is None and isinstance(number, str | int):
            await self._answered_by_client(line, message, number)
            return
        if _is_call(message):
            loop = asyncio.get_running_loop()
            self._unsent[message["id"]] = loop.create_future()
            task = self._calls[message["id"]] = loop.create_task(self._call(line, message))
            task.add_done_callback(lambda _: self._ended(message["id"]))
            return
        if method == "notifications/cancelled":
            request = _params(message).get("requestId")
            task_of = self._calls.get(request) if isinstance(request, str | int) else None
            if task_of is not None and request not in self._answers:
                task_of.cancel()  # it has not reached the server
                return
            await self._forward(line)
            if task_of is not None:
                task_of.cancel()
            return
        if method == "initialize":
            self._initialize = line
            capabilities = _params(message).get("capabilities")
            self._can_ask = isinstance(capabilities, dict) and "elicitation" in capabilities
        elif method == "notifications/initialized":
            self._initialized = line
        if isinstance(number, str | int):
            self._waiting[number] = str(method)
        try:
            await self.upstream.send(line)
        except UpstreamGone as gone:
            if isinstance(number, str | int) and self._waiting.pop(number, None) is not None:
                await self._fail(number, str(gone))

    def _sent(self, number: str | int) -> None:
        unsent = self._unsent.pop(number, None)
        if unsent is not None and not unsent.done():
            unsent.set_result(None)

    def _ended(self, number: str | int) -> None:
        self._calls.pop(number, None)
        self._sent(number)

    async def _answered_by_client(self, line: bytes, message: Message, number: str | int) -> None:
        question = self._questions.pop(number, None) if isinstance(number, str) else None
        if question is not None:
            if not question.done():
                question.set_result(message)
            return
        if number in self._of_server:  # else it answers a run of the server that has ended
            self._of_server.discard(number)
            await self._forward(line)

    async def _forward(self, line: bytes) -> None:
        try:
            await self.upstream.send(line)
        except UpstreamGone as gone:
            log.info("a message of the client is dropped: %s", gone)

    # --- from the server ----------------------------------------------------------------------------------------------

    async def from_server(self, line: bytes) -> None:
        """Process one line of the server."""
        message = _parsed(line)
        if not isinstance(message, dict):
            await self._to_client(line)
            return
        number = message.get("id")
        if not isinstance(number, str | int):
            await self._to_client(line)
            return
        if "method" in message:
            self._of_server.add(number)
            await self._to_client(line)
            return
        answer = self._answers.pop(number, None)
        if answer is not None:
            if not answer.done():
                answer.set_result((line, message))
            return
        asked = self._waiting.pop(number, None)
        if asked is None:
            if not (isinstance(number, str) and number.startswith(ASKED)):
                await self._to_client(line)
            return  # the answer to our own `initialize`
        if asked == "initialize":
            self._meet(message)
        elif asked == "tools/list":
            self._learn(message)
        await self._to_client(line)

    def _meet(self, message: Message) -> None:
        """Store the name that the server gives in its answer to `initialize`."""
        info = _member(_member(message, "result"), "serverInfo")
        if not self.name and isinstance(info.get("name"), str):
            self.name = "".join(one if one.isalnum() or one in "-._" else "_" for one in info["name"])[:MAX_NAME]

    def _learn(self, message: Message) -> None:
        """Store the annotations of the server's tools, which are sent with each call; they have no other effect."""
        tools = _member(message, "result").get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                self._register(tool["name"], _member(tool, "annotations"))

    def _register(self, tool: str, annotations: Mapping[str, Any]) -> str:
        full = f"mcp__{self.name or 'server'}__{tool}"[:256]
        hints = {name: value for name, value in annotations.items() if isinstance(value, bool)}
        self._guard.register(full, service=self.name or "server", annotations=hints, retry=RetryPolicy(max_attempts=1))
        self._known.add(full)
        return full

    # --- one call -----------------------------------------------------------------------------------------------------

    async def _call(self, line: bytes, message: Message) -> None:
        """Pass one `tools/call` through the guard and answer it; the server's answer is passed on unchanged."""
        number, params = message["id"], message["params"]
        args = params.get("arguments")
        received: list[tuple[bytes, Message]] = []

        async def make_call(**_: Any) -> Any:
            answer = asyncio.get_running_loop().create_future()
            self._answers[number] = answer
            try:
                await self.upstream.send(line)
                self._sent(number)
                received.append(await answer)
            finally:
                self._answers.pop(number, None)
            body = received[0][1]
            if "error" in body:
                raise JsonRpcError(body["error"])
            return body.get("result")

        self._notice_quiet()
        if not self._guard.settings.shadow and (reason := self._session.inbox.before_call()):
            await self._pause(number, self._told(reason))
            return
        name = f"mcp__{self.name or 'server'}__{params['name']}"[:256]
        if name not in self._known:
            self._register(params["name"], {})
        try:
            result = await self._session.call(name, make_call, args if isinstance(args, dict) else {}, max_attempts=1)
        finally:
            self._last_call = asyncio.get_running_loop().time()
        if received:
            await self._to_client(self._with_nudges(*received[0]))
        else:
            await self._reply(number, _refusal(result))

    def _notice_quiet(self) -> None:
        """End every streak and pause if nothing was called for a while."""
        if asyncio.get_running_loop().time() - self._last_call > QUIET_S and len(self._calls) == 1:
            self._session.user_message()
            self._session.inbox.resume()

    async def _pause(self, number: str | int, reason: str) -> None:
        """Answer one call in place of the server because a nudge asks for a pause; the next call is made again.

        No message tells a proxy that the user has spoken, so a pause cannot last until then.
        """
        self._session.inbox.resume()
        await self._reply(number, f"trustfold: {reason}", "This call was not made.")

    def _with_nudges(self, line: bytes, message: Message) -> bytes:
        """Response with the pending nudges added as text blocks; unchanged if there are none."""
        result = message.get("result")
        if not isinstance(result, dict) or not isinstance(result.get("content"), list) or self._guard.settings.shadow:
            return line
        if not (nudges := self._session.messages()):
            return line
        exact = json.loads(line)  # numbers beyond 64 bits stay what they are
        exact["result"]["content"] += [{"type": "text", "text": self._told(one["content"])} for one in nudges]
        return json.dumps(exact, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    def _told(self, text: str) -> str:
        """Text of a nudge with tools named as the client knows them: by the server's name only where it was given."""
        return text if self._named else text.replace(f"mcp__{self.name or 'server'}__", "")

    async def _reply(self, number: str | int, *texts: str) -> None:
        """Answer a call in place of the server with a failed result, which models read."""
        nudges = (self._told(one["content"]) for one in self._session.messages())
        blocks = [{"type": "text", "text": one} for one in (*texts, *nudges)]
        await self._send({"id": number, "result": {"content": blocks, "isError": True}})

    async def _fail(self, number: str | int, why: str) -> None:
        await self._send({"id": number, "error": {"code": SERVER_GONE, "message": why}})

    async def _send(self, message: Message) -> None:
        await self._to_client(orjson.dumps({"jsonrpc": "2.0", **message}))

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _ask(
        self, tool_name: str, args: dict[str, Any], context: dict[str, Any] | None, call_id: str | None
    ) -> tuple[bool, dict[str, Any]]:
        """Ask the user through the client (elicitation); if that is impossible, refuse and say what to do."""
        del args, call_id
        why = (context or {}).get(CONTEXT_KEY) or {}
        key, hint = why.get("key", tool_name), why.get("recovery_hint", "")
        if why.get("state") == DANGEROUS:
            reason = str(why["reason"])
        else:
            reason = f"{key} is {why.get('state', 'not trusted')}" + (
                f" - {why['reason']}" if why.get("reason") else ""
            )
            hint = f"one call passes by `trustfold approve {in_quotes(key)} --once`; {hint}"
        if not self._can_ask:
            return False, {"method": "unattended", "reason": f"{reason}; {hint}"}
        self._asked += 1
        number = f"{ASKED}{self._asked}"
        question = self._questions[number] = asyncio.get_running_loop().create_future()
        await self._send(
            {
                "id": number,
                "method": "elicitation/create",
                "params": {
                    "message": f"{reason}. Allow this call of {tool_name}?",
                    "requestedSchema": {"type": "object", "properties": {}},
                },
            }
        )
        try:
            answer = await asyncio.wait_for(question, ASK_TIMEOUT_S)
        except TimeoutError:
            return False, {"method": "user", "reason": f"nobody has answered; {reason}"}
        finally:
            self._questions.pop(number, None)
        action = _member(answer, "result").get("action")
        return action == "accept", {"method": "user", "reason": f"the user said no; {reason}"}

    # --- the server's runs --------------------------------------------------------------------------------------------

    async def on_up(self, again: bool) -> None:  # noqa: FBT001 - see `RestartingServer.run`
        """Repeat the client's `initialize` to a server that was restarted."""
        if not again or not self._initialize:
            return
        log.warning("the MCP server %s runs again", self.name)
        message = json.loads(self._initialize)
        self._asked += 1
        message["id"] = f"{ASKED}{self._asked}"
        await self._forward(json.dumps(message).encode())
        if self._initialized:
            await self._forward(self._initialized)

    def on_down(self, code: int | None) -> bool:
        """Answer open requests with an error; return whether to restart the server."""
        if not self._initialize or "initialize" in self._waiting.values():
            return False  # it has never worked: its own exit code says more
        log.warning("the MCP server %s has ended with %s; it is started again", self.name, code)
        gone = UpstreamGone(f"the MCP server {self.name} has ended in the middle of the call (exit code {code})")
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(gone)
        waiting, self._waiting = self._waiting, {}
        loop = asyncio.get_running_loop()
        self._failing = [loop.create_task(self._fail(number, str(gone))) for number in waiting]
        self._of_server.clear()
        return True

    async def drained(self) -> None:
        """Wait until every call of the client has reached the server or was answered here."""
        if self._unsent:
            await asyncio.wait(set(self._unsent.values()), timeout=DRAIN_S)

    async def close(self) -> None:
        """Cancel running calls."""
        tasks = list(self._calls.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _refusal(result: ToolResult) -> str:
    """Text for the model about a call that did not reach the server's answer."""
    error = result.error
    if error is None:
        return "the call was not made"
    return told_to_model(error.code, error.message) if result.refused else error.message


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _params(message: Message) -> Message:
    return _member(message, "params")


def _member(message: Any, name: str) -> Message:
    found = message.get(name) if isinstance(message, dict) else None
    return found if isinstance(found, dict) else {}


def _is_call(message: Any) -> bool:
    """Whether a message calls a tool by name; other messages are left to the server."""
    return (
        isinstance(message, dict)
        and message.get("method") == "tools/call"
        and isinstance(message.get("id"), str | int)
        and isinstance(_params(message).get("name"), str)
        and 0 < len(_params(message)["name"]) <= MAX_NAME
    )
