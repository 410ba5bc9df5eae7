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


def copilot(number: int, kind: str, agent: str = "", /, **data: Any) -> Record:
    """An event of Copilot CLI."""
    about = {"id": f"e{number}-{kind}-{data.get('toolCallId', '')}", "timestamp": at(number), "parentId": None}
    return {"type": kind, "data": data, **about} | ({"agentId": agent} if agent else {})


def copilot_runs(number: int, call: str, command: str) -> list[Record]:
    """A round of the model that asks for a command, up to its start."""
    about = {"toolCallId": call, "arguments": {"command": command}}
    asks = copilot(
        number, "assistant.message", messageId=f"m{number}", content="", toolRequests=[{"name": "bash", **about}]
    )
    return [asks, copilot(number, "tool.execution_start", toolName="bash", **about)]


def copilot_ran(number: int, call: str, output: str, code: int = 0) -> list[Record]:
    """The end of a command and of its round."""
    content = f"{output}\n<shellId: {number} completed with exit code {code}>"
    about = {"toolCallId": call, "model": "sonnet", "success": True, "result": {"content": content}}
    return [copilot(number, "tool.execution_complete", **about), copilot(number, "assistant.turn_end", turnId="0")]


COPILOT = [
    copilot(1, "session.start", sessionId="copilot-1", context={"cwd": "/home/ada/shop"}),
    copilot(2, "user.message", content="publish it", transformedContent="<now>8</now>\n\npublish it"),
    *copilot_runs(3, "call_1", "./release"),
    *copilot_ran(4, "call_1", "Permission denied", 1),
    *copilot_runs(5, "call_2", "./look"),
    *copilot_ran(6, "call_2", "nothing new"),
    copilot(7, "assistant.message", messageId="m7", content="Done.", toolRequests=[]),
    copilot(7, "assistant.turn_end", turnId="2"),
    copilot(8, "user.message", content="go on"),
    *copilot_runs(9, "call_3", "./wait"),
]


def droid(number: int, role: str, *parts: Record, **about: Any) -> Record:
    """A message in a log of Droid."""
    message = {"role": role, "content": list(parts), **about}
    return {"type": "message", "id": f"d{number}", "timestamp": at(number), "message": message}


def droid_runs(number: int, call: str, command: str) -> Record:
    """A message of the model with a command."""
    return droid(
        number, "assistant", {"type": "tool_use", "id": call, "name": "Execute", "input": {"command": command}}
    )


def droid_ran(number: int, call: str, output: str, **about: Any) -> Record:
    """A result of a command."""
    return droid(number, "user", {"type": "tool_result", "tool_use_id": call, "content": output, **about})


DROID_HEAD = {"type": "session_start", "id": "droid-1", "version": 2, "cwd": "/home/ada/shop"}
_REMINDER = {"type": "text", "text": "<system-reminder>\nBe careful.\n</system-reminder>"}
DROID = [
    DROID_HEAD,
    droid(2, "user", _REMINDER, {"type": "text", "text": "publish it"}),
    droid_runs(3, "toolu_1", "./release"),
    droid_ran(4, "toolu_1", "Permission denied\n\n[Process exited with code 1]", is_error=True),
    droid_runs(5, "toolu_2", "./look"),
    droid_ran(6, "toolu_2", "nothing new\n\n[Process exited with code 0]"),
    {"type": "agent_turn_outcome", "turnId": "t1", "reason": "completed", "timestamp": at(7)},
    droid(8, "user", {"type": "text", "text": "go on"}),
    droid_runs(9, "toolu_3", "./wait"),
]


def pi(number: int, role: str, content: Any, before: int | None = None, **about: Any) -> Record:
    """A message in a log of Pi, by default after the one of the second before."""
    message = {"role": role, "content": content, **about}
    parent = f"p{number - 1 if before is None else before}"
    return {"type": "message", "id": f"p{number}", "parentId": parent, "timestamp": at(number), "message": message}


def pi_runs(number: int, call: str, command: str) -> Record:
    """A message of the model with a command."""
    asks = {"type": "toolCall", "id": call, "name": "bash", "arguments": {"command": command}}
    return pi(number, "assistant", [asks], model="opus", stopReason="toolUse")


def pi_ran(number: int, call: str, output: str, *, failed: bool = False) -> Record:
    """A result of a command."""
    told = [{"type": "text", "text": output}]
    return pi(number, "toolResult", told, toolCallId=call, toolName="bash", isError=failed)


PI_HEAD = {"type": "session", "version": 3, "id": "pi-1", "timestamp": at(1), "cwd": "/home/ada/shop"}
PI = [
    PI_HEAD,
    {"type": "model_change", "id": "p1", "parentId": None, "timestamp": at(1), "modelId": "opus"},
    pi(2, "user", [{"type": "text", "text": "publish it"}]),
    pi_runs(3, "toolu_1", "./release"),
    pi_ran(4, "toolu_1", "Permission denied\n\nCommand exited with code 1", failed=True),
    pi_runs(5, "toolu_2", "./look"),
    pi_ran(6, "toolu_2", "nothing new"),
    pi(7, "assistant", [{"type": "text", "text": "Done."}], model="opus", stopReason="stop"),
    pi(8, "user", "go on"),
    pi_runs(9, "toolu_3", "./wait"),
]

LOGS = {"claude-code": CLAUDE, "codex": CODEX, "gemini": GEMINI, "copilot": COPILOT, "droid": DROID, "pi": PI}


def written(records: list[Record]) -> bytes:
    """Records as an agent writes them."""
    return b"".join(orjson.dumps(record) + b"\n" for record in records)
