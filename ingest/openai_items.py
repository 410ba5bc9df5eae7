"""Messages and items of one transcript as events of one session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .base import LogDefaults, SessionWriter, attempted
from .results import GOOD, StatedEnding, ending_of, failed, remark_of
from .values import arguments_of, first_name, name_of, structured, text_of, time_of

Item = dict[str, Any]

_TIME = ("timestamp", "created_at", "created", "completed_at")
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
_CALLS = frozenset({"function_call", "custom_tool_call", "tool_search_call"})
# Item types of calls answered in a later item, with the tool's name
_COMMANDS = {
    "local_shell_call": "shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
    "computer_call": "computer",
}

# Item types of calls that the API makes itself: one item is the whole call
_SERVED = {
    "mcp_call": "",
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_interpreter",
    "image_generation_call": "image_generation",
}

_ARGUMENTS = ("arguments", "args", "input", "action", "operation", "queries", "code", "query")


class TranscriptReader:
    """Reader of one transcript."""

    def __init__(self, name: str, session: SessionWriter) -> None:
        """Write into a session."""
        self.name = name  # name of the transcript in its file
        self.mark = b""  # digest of its items so far
        self.session = session
        self._count = 0
        self._asked: dict[str, str] = {}

    def begun(self, about: dict[str, Any], at: int | None) -> Iterator[bytes]:
        """Start the transcript; `about` has its model."""
        self.session.model = first_name(about, "model", "model_name")
        yield from self.session.begun(at)

    def more(self, items: list[Item], defaults: LogDefaults) -> Iterator[bytes]:
        """Read the events of further items."""
        for item in items:
            self._count += 1
            self.session.at(f"item {self._count}")
            yield from attempted(item, self._item, defaults)

    def ended(self) -> Iterator[bytes]:
        """End the transcript."""
        yield from self.session.interrupted()
        yield self.session.event("session.ended", place="end")

    def _item(self, item: Item) -> Iterator[bytes]:
        session = self.session
        at = next((time for key in _TIME if (time := time_of(item.get(key))) is not None), None)
        session.model = name_of(item.get("model")) or session.model
        kind = str(item.get("type"))
        role = str(item.get("role") or kind)
        role = _ROLES.get(role, role)
        if kind in _CALLS or kind in _COMMANDS:
            name = name_of(item.get("name")) or _COMMANDS.get(kind, "tool_search")
            yield session.started(first_name(item, "call_id", "id"), name, _arguments(item), at, **_server(item))
        elif kind in _SERVED:
            yield from self._served(item, kind, at)
        elif kind.endswith("_call_output"):
            output, ending = _of_output(item)
            yield from session.finished(first_name(item, "call_id", "id"), output, at, ending=ending)
        elif kind == "mcp_approval_request":
            self._asked[first_name(item, "id")] = name_of(item.get("name"))
        elif kind == "mcp_approval_response" and isinstance(item.get("approve"), bool):
            asked = first_name(item, "approval_request_id")
            if self._asked.get(asked):
                yield session.event(
                    "permission.resolved", at, call_id=asked, tool_name=self._asked[asked], granted=item["approve"]
                )
        elif role == "user":
            yield from self._of_user(item, at)
        elif role == "tool":
            yield from self._of_tool(item, at)
        elif role == "assistant":
            yield from self._of_model(item, at)

    def _served(self, item: Item, kind: str, at: int | None) -> Iterator[bytes]:
        call_id = first_name(item, "call_id", "id")
        name = name_of(item.get("name")) or _SERVED[kind] or "unknown"
        yield self.session.started(call_id, name, _arguments(item), at, **_server(item))
        error, bad = item.get("error"), item.get("status") in {"failed", "incomplete"}
        result = structured(text_of(item["output"])) if item.get("output") else item.get("results", item.get("outputs"))
        if error or bad:
            ending = failed(text_of(error.get("message")) if isinstance(error, dict) else text_of(error))
        else:
            ending = ending_of(result)
        yield from self.session.finished(call_id, result, at, ending=ending)

    def _of_user(self, item: Item, at: int | None) -> Iterator[bytes]:
        """User message; it may contain results of calls, and calls of the user, which are ignored."""
        parts = _parts(item)
        for part in parts:
            if part.get("type") == "tool_result":
                text = text_of(part.get("content"))
                bad = part.get("is_error") is True
                ending = (remark_of(text) if bad else None) or ending_of(text, failure=bad)
                yield from self.session.finished(part.get("tool_use_id"), text, at, ending=ending)
        if item.get("tool_calls"):
            return
        if not parts or any(part.get("type") != "tool_result" for part in parts):
            yield from self.session.said_by_user(at)

    def _of_tool(self, item: Item, at: int | None) -> Iterator[bytes]:
        if item.get("requestor") == "user":
            return
        several = item.get("tool_messages")
        if isinstance(several, list):
            for one in several:
                if isinstance(one, dict):
                    yield from self._of_tool(one, at)
            return
        ids = item.get("tool_call_ids")
        call_id = first_name(item, "tool_call_id", "call_id") or (
            name_of(ids[0]) if isinstance(ids, list) and ids else ""
        )
        if not call_id and self.session.is_open(item.get("id")):
            call_id = name_of(item.get("id"))
        said = item.get("error", item.get("is_error"))
        bad = True if said is True or item.get("status") == "error" else None
        content = item.get("content")
        result = structured(text_of(content)) if not isinstance(content, dict) else content
        seconds = item.get("duration_seconds")
        yield from self.session.finished(
            call_id,
            result,
            at,
            tool=name_of(item.get("name")),
            ending=ending_of(result, failure=bad),
            duration_ms=seconds * 1000 if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else None,
        )

    def _of_model(self, item: Item, at: int | None) -> Iterator[bytes]:
        session = self.session
        yield from session.said_by_model(text_of(item.get("content")) or text_of(item.get("refusal")), at)
        for call in item.get("tool_calls") or ():
            function = call.get("function") or call.get("custom") or call
            yield session.started(call.get("id"), function.get("name"), _arguments(function), at)
        if isinstance(item.get("function_call"), dict):
            function = item["function_call"]
            yield session.started("", function.get("name"), _arguments(function), at)
        for part in _parts(item):
            if part.get("type") == "tool_use":
                yield session.started(part.get("id"), part.get("name"), _arguments(part), at)


def _parts(item: Item) -> list[dict[str, Any]]:
    content = item.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _arguments(holder: dict[str, Any]) -> dict[str, Any]:
    for name in _ARGUMENTS:
        given = holder.get(name)
        if given is not None:
            return arguments_of(given)
    return {}


def _server(item: Item) -> dict[str, str]:
    label = first_name(item, "server_label", "namespace")
    return {"service": label} if label else {}


def _of_output(item: Item) -> tuple[Any, StatedEnding]:
    """Content of an output item, and how its call ended."""
    output = item.get("output")
    bad = item.get("status") in {"failed", "incomplete"} or item.get("is_error") is True or bool(item.get("error"))
    if isinstance(output, list):
        outcomes = [one["outcome"] for one in output if isinstance(one, dict) and isinstance(one.get("outcome"), dict)]
        if outcomes:
            text = "\n".join(str(one.get("stdout") or "") + str(one.get("stderr") or "") for one in output)
            for outcome in outcomes:
                if outcome.get("type") == "timeout":
                    return text, StatedEnding("timeout", {"type": "timeout"})
                if outcome.get("exit_code"):
                    return text, failed(text, f"exit_code_{outcome['exit_code']}")
            return text, GOOD
    result = output if isinstance(output, dict) else structured(text_of(output))
    return result, ending_of(result, failure=True if bad else None)
