"""Session logs of Codex: the `rollout-*.jsonl` files below `~/.codex/sessions/`.

A line is `{"timestamp", "type", "payload"}`; older versions write the payload alone. Calls and their outputs are items
of the Responses API. Messages that the client adds by itself (its view of the environment, instructions) are not the
user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from .base import Defaults, Lines, Session, arguments_of, each, name_of, records_of, text_of, time_of

_NOT_SPOKEN = re.compile(
    r"\s*<(?:environment_context|user_instructions|permissions|turn_aborted|INSTRUCTIONS)|\s*# AGENTS\.md"
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})


def read_codex(lines: Lines, defaults: Defaults) -> Iterator[bytes]:
    """Events of a session log."""
    sessions: list[Session] = []
    return each(records_of(lines, defaults.source), lambda record: _line(sessions, record, defaults))


def _line(sessions: list[Session], record: dict[str, Any], defaults: Defaults) -> Iterator[bytes]:
    """Events of one line; the list holds the file's session as soon as there is one."""
    at = time_of(record.get("timestamp"))
    payload = record.get("payload")
    kind, item = (str(record.get("type")), payload) if isinstance(payload, dict) else ("response_item", record)
    if not sessions:
        name = item.get("id") if kind == "session_meta" or "type" not in item else None
        sessions.append(Session(defaults.session or str(name or defaults.source), defaults.workspace or _folder(item)))
        yield sessions[0].event("session.started", at)
    session = sessions[0]
    if kind in {"session_meta", "turn_context"}:
        session.model = name_of(item.get("model")) or session.model
        session.workspace = session.workspace or _folder(item)
    elif kind == "response_item":
        yield from _item(session, item, at)


def _item(session: Session, item: dict[str, Any], at: int | None) -> Iterator[bytes]:
    kind, call_id = item.get("type"), str(item.get("call_id") or item.get("id") or "")
    if kind == "message":
        text = text_of(item.get("content"))
        if item.get("role") == "assistant":
            yield from session.said_by_model(text, at)
        elif item.get("role") == "user" and text.strip() and not _NOT_SPOKEN.match(text):
            yield from session.said_by_user(at)
    elif kind in _CALLS:
        name = str(
            item.get("name") or {"local_shell_call": "shell", "web_search_call": "web_search"}.get(str(kind), "")
        )
        server = {"service": name_of(item["namespace"])} if item.get("namespace") else {}
        arguments = item.get("arguments", item.get("input", item.get("action")))
        yield session.started(call_id, name, _command(arguments_of(arguments)), at, **server)
    elif kind in _OUTPUTS:
        yield session.finished(call_id, _output(item.get("output")), at)


def _command(arguments: Any) -> Any:
    """Arguments with a shell's command as one line: it is a list of words, usually behind `bash -lc`."""
    if isinstance(arguments, dict) and isinstance(arguments.get("command"), list):
        words = [str(word) for word in arguments["command"]]
        shell = len(words) == 3 and words[0].rpartition("/")[2] in {"bash", "sh", "zsh"} and words[1].startswith("-")
        return {**arguments, "command": words[2] if shell else " ".join(words)}
    return arguments


def _output(output: Any) -> Any:
    """An output as the folds read it: an exit code where there is one."""
    if isinstance(output, dict):
        given = output
    else:
        text = text_of(output)
        given = arguments_of(text) if text.lstrip()[:1] == "{" else {}
        if not given or given.keys() == {"input"}:
            return text
    about = given.get("metadata")
    if isinstance(about, dict) and "exit_code" in about:
        return {"output": given.get("output"), "exit_code": about["exit_code"]}
    if given.get("success") is False:
        return {"isError": True, "content": text_of(given.get("content"))}
    return given


def _folder(item: dict[str, Any]) -> str:
    return name_of(PurePath(str(item.get("cwd") or "")).name)
