"""Session logs of coding agents in small: a failing command, a good one, and one without an answer."""

from __future__ import annotations

from typing import Any

import orjson

Record = dict[str, Any]


def at(second: float) -> str:
    """A time of the session."""
    return f"2026-11-22T07:18:{second:06.3f}Z"


def _claude(number: int, kind: str, content: Any) -> Record:
    message = {"role": kind, "content": content} | ({"model": "opus"} if kind == "assistant" else {})
    about = {"uuid": f"u{number}", "sessionId": "claude-1", "cwd": "/home/ada/shop", "timestamp": at(number)}
    return {"type": kind, **about, "message": message}


def _asks(call: str, command: str) -> list[Record]:
    return [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command}}]


def _hears(call: str, text: str, *, failed: bool = False) -> list[Record]:
    return [{"type": "tool_result", "tool_use_id": call, "content": text, "is_error": failed}]


CLAUDE = [
    {"type": "queue-operation", "operation": "enqueue", "sessionId": "claude-1"},
    _claude(1, "user", "publish it"),
    _claude(2, "assistant", [{"type": "text", "text": "I try."}]),
    _claude(3, "assistant", _asks("toolu_1", "./release")),
    _claude(4, "user", _hears("toolu_1", "Exit code 1\nPermission denied", failed=True)),
    _claude(5, "assistant", _asks("toolu_2", "./look")),
    _claude(6, "user", _hears("toolu_2", "nothing new")),
    {"type": "system", "subtype": "turn_duration", "uuid": "u7", "sessionId": "claude-1", "timestamp": at(7)},
    _claude(8, "user", "go on"),
    _claude(9, "assistant", _asks("toolu_3", "./wait")),
]


def _codex(number: int, kind: str, **payload: Any) -> Record:
    return {"timestamp": at(number), "type": kind, "payload": payload}


def _runs(number: int, call: str, command: str) -> Record:
    arguments = orjson.dumps({"cmd": command}).decode()
    return _codex(number, "response_item", type="function_call", name="exec_command", arguments=arguments, call_id=call)


def _item(call: str, code: int) -> Record:
    took = {"secs": 0, "nanos": 12_000_000}
    ended = {"exit_code": code, "status": "failed" if code else "completed", "duration": took}
    return {"type": "CommandExecution", "id": call, **ended}


CODEX = [
    _codex(1, "session_meta", id="codex-1", cwd="/home/ada/shop"),
    _codex(1, "event_msg", type="task_started"),
    _codex(1, "turn_context", model="gpt", cwd="/home/ada/shop"),
    _codex(2, "response_item", type="message", role="user", content=[{"type": "input_text", "text": "publish it"}]),
    _codex(2, "response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "I try."}]),
    _runs(3, "call_1", "./release"),
    _codex(4, "event_msg", type="item_completed", item=_item("call_1", 1)),
    _codex(4, "response_item", type="function_call_output", call_id="call_1", output="Permission denied"),
    _runs(5, "call_2", "./look"),
    _codex(6, "event_msg", type="item_completed", item=_item("call_2", 0)),
    _codex(6, "response_item", type="function_call_output", call_id="call_2", output="nothing new"),
    _codex(7, "event_msg", type="task_complete", last_agent_message="Done."),
    _codex(8, "response_item", type="message", role="user", content=[{"type": "input_text", "text": "go on"}]),
    _runs(9, "call_3", "./wait"),
]


def gemini_call(call: str, command: str, answer: str | Record, second: float, status: str = "success") -> Record:
    """A call as a message of the model holds it, once it has ended; `answer` is its output, or the whole response."""
    about = {"id": call, "name": "run_shell_command"}
    told = {"output": answer} if isinstance(answer, str) else answer
    result = [{"functionResponse": {**about, "response": told}}]
    return {**about, "args": {"command": command}, "result": result, "status": status, "timestamp": at(second)}


def gemini_says(number: int, text: str, *calls: Record) -> Record:
    """A message of the model."""
    said = {"id": f"g{number}", "timestamp": at(number), "type": "gemini", "content": text, "model": "gemini-2.5-flash"}
    return said | ({"toolCalls": list(calls)} if calls else {})


def gemini_hears(number: int, text: str) -> Record:
    """A message of the user."""
    return {"id": f"g{number}", "timestamp": at(number), "type": "user", "content": [{"text": text}]}


def _output(text: str) -> str:
    return f"<untrusted_context>\nOutput: {text}\nProcess Group PGID: 8865\n</untrusted_context>"


_CONTEXT = "<session_context>\n- **Workspace Directories:**\n  - /home/ada/shop\n</session_context>"
_RELEASED = gemini_call("shell_1", "./release", _output("Permission denied\nExit Code: 1"), 4)
_LOOKED = gemini_call("shell_2", "./look", f"{_output('nothing new')}\n\n<hook_context>a hint</hook_context>", 6)

GEMINI_HEAD = {"sessionId": "gemini-1", "projectHash": "eef8", "startTime": at(1), "kind": "main"}
GEMINI = [
    GEMINI_HEAD,
    {"$set": {"messages": [{"id": "ctx", "timestamp": at(1), "type": "user", "content": [{"text": _CONTEXT}]}]}},
    gemini_hears(2, "<hook_context>be careful</hook_context>\n\npublish it"),
    {"$set": {"lastUpdated": at(2)}},
    gemini_says(3, "I try."),
    gemini_says(3, "I try.", _RELEASED),
    {"id": "r4", "timestamp": at(4), "type": "user", "content": _RELEASED["result"]},
    gemini_says(5, "", _LOOKED),
    {"id": "r6", "timestamp": at(6), "type": "user", "content": _LOOKED["result"]},
    gemini_hears(8, "go on"),
    gemini_says(9, "I wait."),
]

LOGS = {"claude-code": CLAUDE, "codex": CODEX, "gemini": GEMINI}


def written(records: list[Record]) -> bytes:
    """Records as an agent writes them."""
    return b"".join(orjson.dumps(record) + b"\n" for record in records)
