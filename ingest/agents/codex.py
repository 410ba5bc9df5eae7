"""Session logs of Codex: the `rollout-*.jsonl` files below `~/.codex/sessions/`.

A line is `{"timestamp", "type", "payload"}`; older versions write the payload alone, the oldest one document with
`session` and `items`. Calls and their outputs are items of the Responses API; those between two outputs are one message
of the model. What the client adds by itself (its view of the environment, instructions) is its input. Of the events for
the screen, those on the end of a command, a patch or an MCP call count: they know an exit code or a refusal that the
output for the model may leave out; those on the end of a turn and on the model's context count, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from ...projections.calls.classify import TOOL_ERROR
from ..base import LogDefaults, SessionWriter
from ..results import (
    GOOD,
    INTERRUPTED,
    StatedEnding,
    ending_of,
    exit_code_of,
    failed,
    output_of,
    rejection_of,
    remark_of,
    wall_time_of,
)
from ..speakers import WAKING, heard
from ..values import arguments_of, first_name, name_of, structured, text_of, time_of
from ..workspaces import workspace_of

_NAMES = {"local_shell_call": "shell", "tool_search_call": "tool_search"}
CALLS = frozenset({"function_call", "custom_tool_call", *_NAMES})
OUTPUTS = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output"}
)
_SHELLS = frozenset({"exec_command", "shell", "shell_command", "local_shell", "container.exec"})
# Item types of calls that the API makes itself: one item is the whole call
_SERVED = {"web_search_call": "web_search", "image_generation_call": "image_generation"}

_FAILED = re.compile(
    r"\s*(?:err: |tool call error: |execution error: |exec_command failed|write_stdin failed"
    r"|apply_patch verification failed|command timed out after )"
)
_LONG_ID = 16  # Minimum length of call ids that are globally unique; a repeated one means a forked session


class CommandEnd(NamedTuple):
    """End of a call as given by an event for the screen."""

    ending: StatedEnding | None
    exit_code: int | None
    duration_ms: float | None


NO_END = CommandEnd(None, None, None)


class CodexLog:
    """Incremental reader of the session of one file."""

    def __init__(self, defaults: LogDefaults) -> None:
        """Start before the first line."""
        self._session: SessionWriter | None = None
        self._defaults = defaults
        self._run = defaults.run
        self._ends: dict[str, CommandEnd] = {}
        self._repeated: set[str] = set()
        self._places: Counter[str] = Counter()
        self._message = ""
        self._compacted = False
        self._is_of_agent = False

    def ended(self) -> Iterator[bytes]:
        """Events that close the calls and the turn left open at the end of the log."""
        if self._session is not None:
            yield from self._session.closed()

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        if isinstance(record.get("session"), dict) and isinstance(record.get("items"), list):
            yield from self.line(record["session"])
            for item in record["items"]:
                if isinstance(item, dict):
                    yield from self.line(item)
            return
        at, payload = time_of(record.get("timestamp")), record.get("payload")
        kind, item = (str(record.get("type")), payload) if isinstance(payload, dict) else ("response_item", record)
        header = kind == "session_meta" or (item is record and "type" not in record)
        session = self._session
        if session is None:
            name = first_name(item, "id", "session_id") if header else ""
            name = self._defaults.session or name or self._defaults.source
            session = SessionWriter(name, self._defaults, workspace_of(text_of(item.get("cwd"))), ends_turns=True)
            self._session = session
            yield from session.begun(at if at is not None else time_of(item.get("timestamp")))
        place = blake2b(orjson.dumps(record), digest_size=12).hexdigest()
        self._places[place] += 1
        session.at(f"{place} {self._places[place]}")
        if header or kind == "turn_context":
            session.model = name_of(item.get("model")) or session.model
            session.workspace = session.workspace or workspace_of(text_of(item.get("cwd")))
            origin = item.get("source")
            self._is_of_agent = self._is_of_agent or (isinstance(origin, dict) and "subagent" in origin)
        elif kind == "compacted":
            self._compacted = True
            yield from session.compacted(at)
        elif kind == "response_item":
            yield from self._item(session, item, at, place)
        elif kind == "event_msg":
            yield from self._shown(session, item, at)

    def _item(self, session: SessionWriter, item: dict[str, Any], at: int | None, place: str) -> Iterator[bytes]:
        kind, call_id = str(item.get("type")), first_name(item, "call_id", "id")
        if kind in CALLS or kind in _SERVED or kind == "reasoning" or item.get("role") == "assistant":
            self._message = self._message or place
            self._compacted = False
        else:
            self._message = ""
        if kind == "message":
            yield from self._said(session, item, at)
        elif kind == "reasoning":
            yield from session.said_by_model(text_of(item.get("summary")), at, thought=True)
        elif kind in CALLS:
            if self._is_repeated(session, call_id):
                return
            yield from session.resumed(at)
            more = {"message_id": self._message}
            if server := name_of(item.get("namespace")):
                more["service"] = server
            name, args = call_of(item)
            yield session.started(call_id, name, args, at, **more)
        elif kind in _SERVED:
            if self._is_repeated(session, call_id):
                return
            yield from session.resumed(at)
            action = arguments_of(item.get("action"))
            yield session.started(call_id, _SERVED[kind], action, at, message_id=self._message)
            failure = item.get("status") in {"failed", "incomplete"}
            yield from session.finished(call_id, None, at, ending=failed("") if failure else GOOD)
        elif kind in OUTPUTS:
            if call_id in self._repeated:
                self._run.skipped.repeated += 1
                return
            result, ending, taken = output_ended(item.get("output", item.get("tools")), self._ends.pop(call_id, NO_END))
            yield from session.finished(call_id, result, at, ending=ending, duration_ms=taken)

    def _said(self, session: SessionWriter, item: dict[str, Any], at: int | None) -> Iterator[bytes]:
        content = item.get("content")
        parts = content if isinstance(content, list) else [content]
        if item.get("role") == "assistant":
            yield from session.resumed(at)
            yield from session.said_by_model(text_of(content), at)
        elif item.get("role") == "user":
            texts = [text_of(part) for part in parts]
            told = [heard(text) for text in texts]
            pictures = any(isinstance(part, dict) and part.get("type") == "input_image" for part in parts)
            if any(text.lstrip().startswith("<turn_aborted>") for text in texts):
                yield from session.turn_over(at)
            elif pictures or any(one.spoken for one in told):
                if self._is_of_agent:
                    yield from session.received("agent", at, wakes=True)
                else:
                    yield from session.said_by_user(at, words=sum(one.words for one in told))
            elif source := next((one.source for one in told if one.source), ""):
                yield from session.received(source, at, wakes=source in WAKING)
        elif item.get("role") == "developer":
            yield from session.received("client", at)

    def _shown(self, session: SessionWriter, item: dict[str, Any], at: int | None) -> Iterator[bytes]:
        kind, call_id = str(item.get("type")), first_name(item, "call_id")
        done = item.get("item")
        if kind == "item_completed" and isinstance(done, dict) and done.get("type") == "CommandExecution":
            kind, call_id, item = "exec_command_end", first_name(done, "id"), done
        if kind == "turn_aborted":
            yield from session.turn_over(at)
        elif kind == "task_complete":
            yield from session.stopped(at)
        elif kind == "thread_rolled_back" or (kind == "context_compacted" and not self._compacted):
            yield from session.compacted(at)
        elif kind == "context_compacted":  # the record before it told so
            self._compacted = False
        elif kind in {"exec_command_end", "patch_apply_end", "mcp_tool_call_end"} and session.is_open(call_id):
            self._ends[call_id] = end_shown(item)

    def _is_repeated(self, session: SessionWriter, call_id: str) -> bool:
        """True if a call belongs to the session that this one was forked from, and was already imported."""
        if len(call_id) < _LONG_ID or session.is_open(call_id):
            return False
        owner = f"codex call\x1f{call_id}"
        if self._run.first(owner) or f"{owner}\x1f{session.id}" in self._run.seen:
            self._run.seen.add(f"{owner}\x1f{session.id}")
            return False
        self._repeated.add(call_id)
        self._run.skipped.repeated += 1
        return True


def call_of(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Tool and arguments of a call, as the hooks name them: whatever runs a command is `Bash`, with its line alone.

    A log may hold the line as a list of words, usually after `bash -lc`.
    """
    name = name_of(item.get("name")) or _NAMES.get(str(item.get("type")), "")
    args = arguments_of(item.get("arguments", item.get("input", item.get("action"))))
    if name not in _SHELLS:
        return name, args
    line = next((args[field] for field in ("command", "cmd") if field in args), None)
    if isinstance(line, list):
        words = [str(word) for word in line]
        shell = len(words) == 3 and words[0].rpartition("/")[2] in {"bash", "sh", "zsh"} and words[1][:1] == "-"
        line = words[2] if shell else " ".join(words)
    return "Bash", args if line is None else {"command": line}


def output_ended(output: Any, end: CommandEnd) -> tuple[Any, StatedEnding, float | None]:
    """Plain output, how the call ended, and its duration if given."""
    if isinstance(output, dict):
        given: Any = output
    else:
        text = _text_with_pictures(output)
        given = structured(text)
        if not isinstance(given, dict):
            return output_of(text), ending_of_text(text, end), _first(wall_time_of(text), end.duration_ms)
    about = given.get("metadata")
    if isinstance(about, dict) and "exit_code" in about:
        seconds, code = about.get("duration_seconds"), about["exit_code"]
        taken = seconds * 1000 if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else None
        text = text_of(given.get("output"))
        ending = (remark_of(text) or failed(text, f"exit_code_{code}")) if isinstance(code, int) and code else GOOD
        return text, ending, _first(taken, end.duration_ms)
    if "success" in given and "content" in given:
        text = text_of(given["content"])
        ending = ending_of_text(text, end) if given["success"] is not False else remark_of(text) or failed(text)
        return structured(text), ending, end.duration_ms
    return given, end.ending or GOOD, end.duration_ms


def _text_with_pictures(output: Any) -> str:
    """Text of an output; a picture stands for itself with a digest, so that different ones differ."""
    if not isinstance(output, list):
        return text_of(output)
    return text_of(
        [
            f"[image {blake2b(str(part.get('image_url')).encode(errors='replace'), digest_size=8).hexdigest()}]"
            if isinstance(part, dict) and part.get("type") == "input_image"
            else part
            for part in output
        ]
    )


def ending_of_text(text: str, end: CommandEnd) -> StatedEnding:
    """Return the end of a call, from the text that the model got and the event for the screen."""
    if (known := rejection_of(text) or remark_of(text)) is not None:
        return known
    plain = output_of(text)
    if end.ending is not None and end.ending.error is not None:
        message = end.ending.error.get("message") or plain
        return end.ending if end.ending is INTERRUPTED else failed(message, str(end.ending.error["type"]))
    if end.ending is GOOD:
        return GOOD
    if code := exit_code_of(text) or end.exit_code:
        return failed(plain, f"exit_code_{code}")
    return ending_of(text, failure=True if _FAILED.match(text) else None)


def end_shown(item: dict[str, Any]) -> CommandEnd:
    """End of a call from an `…_end` event."""
    exit_code = item.get("exit_code") if isinstance(item.get("exit_code"), int) else None
    duration = item.get("duration")
    taken = None
    if isinstance(duration, dict):
        secs, nanos = duration.get("secs", 0), duration.get("nanos", 0)
        if isinstance(secs, int | float) and isinstance(nanos, int | float):
            taken = secs * 1000.0 + nanos / 1e6
    result = item.get("result")
    if item.get("status") == "declined":
        return CommandEnd(failed(text_of(item.get("stderr")), "user_rejected"), exit_code, taken)
    if isinstance(result, dict) and "Err" in result:
        return CommandEnd(failed(text_of(result["Err"])), exit_code, taken)
    inner = result.get("Ok") if isinstance(result, dict) else None
    if isinstance(inner, dict) and (inner.get("isError") is True or inner.get("is_error") is True):
        return CommandEnd(failed(text_of(inner.get("content")), TOOL_ERROR), exit_code, taken)
    if item.get("success") is False or (item.get("status") == "failed" and not exit_code):
        return CommandEnd(failed(text_of(item.get("stderr"))), exit_code, taken)
    return CommandEnd(GOOD if exit_code == 0 or item.get("success") is True else None, exit_code, taken)


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
