"""A model that follows a script, behind the APIs of Anthropic, OpenAI (chat and responses) and Gemini.

It makes one move after the other: the number of tool results in a request says which is next. Every request is kept, so
that a test can look for what the agent told the model.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

SHELLS = ("Bash", "exec_command", "shell_command", "shell", "local_shell", "run_shell_command", "bash")
DONE = "That is all there is to do."
SUBAGENT = "Look around here, and tell me what there is."
"""Prompt of an agent that the model starts: it has a script of its own."""

_LOOKS_AROUND = ("ls", "ls -a")
_FIRST = 3
"""Messages at the start of a conversation among which its prompt is."""
USAGE = {"input_tokens": 100, "output_tokens": 20}


class Step(NamedTuple):
    """One message of the model: the calls it makes, and the text before them.

    Attributes:
        calls: tool and arguments of each call; a text alone is a command for whatever shell the agent has.
        text: what the model says; None for its usual words.
    """

    calls: tuple[str | tuple[str, Any], ...]
    text: str | None = None


class Move(NamedTuple):
    """A step in the tools of one agent: what is said, and name and arguments of each call."""

    text: str
    calls: tuple[tuple[str, Any], ...] = ()


class FakeModel:
    """The server; use it with `with`.

    Attributes:
        requests: parsed bodies of all requests for an answer, in order.
        ended: how often it said that it is done.
        asked: for each request of a script's next step, the number of results before it, and when it came, in seconds.
        url: where it listens.
    """

    def __init__(self, steps: Sequence[str | Step]) -> None:
        """Make `steps` in order, a text for a command of the shell, then say that it is done."""
        self.steps = [one if isinstance(one, Step) else Step((one,)) for one in steps]
        self.requests: list[dict[str, Any]] = []
        self.ended = 0
        self.asked: list[tuple[int, float]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def said(self) -> str:
        """Everything that the agent told the model, as one text."""
        return json.dumps(self.requests, ensure_ascii=False)

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, bytes]:
        """Content type and bytes of the answer to a request."""
        if "count" in path.lower():
            return _json({"input_tokens": 10, "totalTokens": 10})
        for mark, speak in (
            ("/messages", _anthropic),
            ("/responses", _responses),
            ("/chat/completions", _chat),
            ("enerateContent", _gemini),
        ):
            if mark in path:
                self.requests.append(body)
                return speak(self, body, path)
        return _json(
            {"object": "list", "data": [{"id": "fake-model", "object": "model", "type": "model"}], "models": []}
        )

    def move(self, tools: list[tuple[str, dict[str, Any]]], results: int, messages: list[Any]) -> Move:
        """The next message; one without calls when the script is over, or there is no shell to call."""
        steps = [Step((one,)) for one in _LOOKS_AROUND] if SUBAGENT in json.dumps(messages[:_FIRST]) else self.steps
        shell = next(((name, schema or {}) for name in SHELLS for tool, schema in tools if tool == name), None)
        if shell is None:
            return Move(DONE)
        if steps is self.steps:
            self.asked.append((results, time.monotonic()))
        first = 0
        for step in steps:
            if first >= results:
                made = ((shell[0], _arguments(shell[1], one)) if isinstance(one, str) else one for one in step.calls)
                return Move(f"I run step {first}." if step.text is None else step.text, tuple(made))
            first += len(step.calls)
        self.ended += 1
        return Move(DONE)


def _arguments(schema: dict[str, Any], command: str) -> dict[str, Any]:
    known = schema.get("properties", {})
    usual = {"string": "run a command", "boolean": False, "number": 30000, "integer": 30000, "array": []}
    made = {name: usual.get(str(known.get(name, {}).get("type")), "x") for name in schema.get("required", [])}
    name = "cmd" if "cmd" in known else "command"
    made[name] = ["bash", "-lc", command] if known.get(name, {}).get("type") == "array" else command
    return made


def _handler(model: FakeModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._send(*model.answer("", {}))

        do_HEAD = do_GET  # noqa: N815 - the server asks for this name

        def do_POST(self) -> None:
            try:
                body = json.loads(self._body() or b"{}")
            except ValueError:
                body = {}
            self._send(*model.answer(self.path, body))

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            whole = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole

        def _send(self, kind: str, answer: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    return Handler


def _json(value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode()


def _events(values: list[dict[str, Any]], *, named: bool = True, end: str = "") -> tuple[str, bytes]:
    lines = [(f"event: {one['type']}\n" if named else "") + f"data: {json.dumps(one)}\n\n" for one in values]
    return "text/event-stream", ("".join(lines) + end).encode()


def _anthropic(model: FakeModel, body: dict[str, Any], _path: str) -> tuple[str, bytes]:
    parts = [
        part for one in body.get("messages", []) if isinstance(one.get("content"), list) for part in one["content"]
    ]
    results = sum(part.get("type") == "tool_result" for part in parts)
    tools = [(tool.get("name"), tool.get("input_schema")) for tool in body.get("tools", [])]
    move = model.move(tools, results, body.get("messages", []))
    message = {
        "id": f"msg_{results}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "usage": USAGE,
    }
    if not body.get("stream"):
        return _json(message | {"content": [{"type": "text", "text": move.text}], "stop_reason": "end_turn"})
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = []
    if move.text:
        blocks.append(({"type": "text", "text": ""}, {"type": "text_delta", "text": move.text}))
    for place, (name, args) in enumerate(move.calls, results):
        use = {"type": "tool_use", "id": f"toolu_{place:04d}", "name": name, "input": {}}
        blocks.append((use, {"type": "input_json_delta", "partial_json": json.dumps(args)}))
    values: list[dict[str, Any]] = [{"type": "message_start", "message": message | {"content": []}}]
    for place, (block, delta) in enumerate(blocks):
        values += [
            {"type": "content_block_start", "index": place, "content_block": block},
            {"type": "content_block_delta", "index": place, "delta": delta},
            {"type": "content_block_stop", "index": place},
        ]
    stop = {"stop_reason": "tool_use" if move.calls else "end_turn", "stop_sequence": None}
    values += [{"type": "message_delta", "delta": stop, "usage": USAGE}, {"type": "message_stop"}]
    return _events(values)


def _responses(model: FakeModel, body: dict[str, Any], _path: str) -> tuple[str, bytes]:
    given = body.get("input") if isinstance(body.get("input"), list) else []
    results = sum(str(one.get("type", "")).endswith("call_output") for one in given)
    tools = [(tool.get("name"), tool.get("parameters")) for tool in body.get("tools", [])]
    move = model.move(tools, results, given)
    text = {"type": "output_text", "text": move.text, "annotations": []}
    said = {"type": "message", "role": "assistant", "id": f"m{results}", "status": "completed", "content": [text]}
    items: list[dict[str, Any]] = [said] if move.text else []
    for place, (name, args) in enumerate(move.calls, results):
        call = {"call_id": f"call_{place}", "name": name, "status": "completed"}
        if isinstance(args, str):
            items.append({"type": "custom_tool_call", "id": f"ctc_{place}", "input": args, **call})
        else:
            items.append({"type": "function_call", "id": f"fc_{place}", "arguments": json.dumps(args), **call})
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {"id": f"resp_{results}", "object": "response", "created_at": 1, "model": body.get("model")}
    done = whole | {"status": "completed", "output": items, "usage": usage | details}
    if not body.get("stream"):
        return _json(done)
    values: list[dict[str, Any]] = [{"type": "response.created", "response": whole | {"status": "in_progress"}}]
    for place, item in enumerate(items):
        values.append({"type": "response.output_item.added", "output_index": place, "item": item})
        values.append({"type": "response.output_item.done", "output_index": place, "item": item})
    values.append({"type": "response.completed", "response": done})
    return _events([one | {"sequence_number": place} for place, one in enumerate(values)])


def _chat(model: FakeModel, body: dict[str, Any], _path: str) -> tuple[str, bytes]:
    results = sum(one.get("role") == "tool" for one in body.get("messages", []))
    tools = [tool["function"] for tool in body.get("tools", []) if "function" in tool]
    move = model.move([(tool.get("name"), tool.get("parameters")) for tool in tools], results, body.get("messages", []))
    message: dict[str, Any] = {"role": "assistant", "content": move.text}
    if move.calls:
        message["tool_calls"] = [
            {
                "index": place,
                "id": f"call_{results + place}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(args)},
            }
            for place, (name, args) in enumerate(move.calls)
        ]
    base = {"id": "chat-1", "created": 1, "model": body.get("model")}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    end = "tool_calls" if move.calls else "stop"
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": end}
        return _json(base | {"object": "chat.completion", "choices": [choice], "usage": usage})
    chunk = base | {"object": "chat.completion.chunk"}
    first = chunk | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    last = chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": end}], "usage": usage}
    return _events([first, last], named=False, end="data: [DONE]\n\n")


def _gemini(model: FakeModel, body: dict[str, Any], path: str) -> tuple[str, bytes]:
    parts = [part for one in body.get("contents", []) for part in one.get("parts", [])]
    results = sum("functionResponse" in part for part in parts)
    declared = [one for tool in body.get("tools", []) for one in tool.get("functionDeclarations", [])]
    tools = [(one.get("name"), one.get("parametersJsonSchema") or one.get("parameters")) for one in declared]
    move = model.move(tools, results, body.get("contents", []))
    spoken: list[dict[str, Any]] = [{"text": move.text}] if move.text else []
    spoken += [{"functionCall": {"name": name, "args": args}} for name, args in move.calls]
    streamed = "stream" in path
    if not streamed:  # a question about whose turn it is
        spoken = [{"text": json.dumps({"next_speaker": "user", "reasoning": "done", "model_choice": "flash"})}]
    candidate = {"content": {"role": "model", "parts": spoken}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
    whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}
    return _events([whole], named=False) if streamed else _json(whole)
