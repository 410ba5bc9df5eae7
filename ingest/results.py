"""Status of a call derived from its result's text, for logs without a field for it.

The patterns match texts of the clients: Claude Code and Codex for refusals and interruptions, Codex, OpenHands and
Claude Code for exit codes, agent frameworks for errors they hand to the model as text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from .values import shortened, text_of

MAX_MESSAGE = 2000  # Maximum characters of an error's message; folds search no more
_MAX_REMARK = 2000  # Maximum characters of a client's own remark on a call; a longer text is a result that quotes one

_SIBLING = r"(?:<tool_use_error>)?(?:Sibling tool call errored|Cancelled: parallel tool call)"
_STOPPED = (
    r"\[Request interrupted by user|(?:Wall time: [\d.]+ seconds\n)?aborted(?: by user\b[^\n]*+)?\s*\Z"
    r"|(?:the )?tool (?:call|use) was (?:interrupted|cancelled)"
)
_HOOK = r"PreToolUse:\S+ hook error|Hook PreToolUse:\S+ denied this tool"
_REFUSED = (
    r"The user doesn't want to (?:proceed|take this action)|User rejected\b"
    r"|Permission (?:to use \S+|for this action) has been denied"
    r"|Claude requested permissions? to [^\n]{1,300}haven't granted it"
    r"|[^\n]{0,300}?\b(?:rejected|declined|denied) by (?:the )?user\b"
)
_REMARKS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(rf"\A\s*+(?:Error: )?(?:{words})", re.IGNORECASE))
    for kind, words in (
        ("sibling_error", _SIBLING),
        ("interrupted", _STOPPED),
        ("blocked_by_guard", _HOOK),
        ("user_rejected", _REFUSED),
    )
)
_REJECTED = re.compile(
    r"(?:<tool_use_error>\s*)?(?:Error: )?"
    r"(?:InputValidationError\b|No such tool available\b|File has not been read yet"
    r"|File has been (?:unexpectedly )?modified\b|unsupported (?:custom tool )?call: "
    r"|failed to parse function arguments\b|Tool \"[^\"\n]{1,200}\" not found|params must (?:have|match)\b)"
    r"|<tool_use_error>Blocked: "
)
_HEAD_WORDS = (
    "Chunk ID: ",
    "Exit code: ",
    "Wall time: ",
    "Process exited with code ",
    "Process running with session ID ",
    "Original token count: ",
)
_HEAD_CHARS = 500
_EXIT = re.compile(
    r"^(?:Error: )?(?:Process exited with code|Exit code:?|exit(?:ed with)? (?:code|status):?) (-?\d{1,10})[ \t.]*$",
    re.MULTILINE,
)
_EXIT_LAST = re.compile(r"\[(?:The command completed|Command finished) with exit code (\d{1,10})\.?\]")
_WALL_TIME = re.compile(r"^Wall time: (\d+(?:\.\d+)?) sec", re.MULTILINE)
_HEAD_LINES = 6
_FAILED = re.compile(
    r"\s*(?:<tool_use_error>|(?:Error|ERROR|error)(?::|\s*\Z|\s+(?:executing|calling|invoking|running|while|occurred)\b)"
    r"|Traceback \(most recent call last\)|[A-Z]\w*(?:Error|Exception):)"
)
_TYPE = re.compile(r"(?:<tool_use_error>\s*)?(?:Error: )?([A-Z]\w{2,60}(?:Error|Exception))\s*[:(]")
_TAGS = re.compile(r"</?tool_use_error>")


class StatedEnding(NamedTuple):
    """Ending of a call as its event states it."""

    status: str = "success"  # status for the event
    error: dict[str, Any] | None = None  # error for the event; None if there is none


GOOD = StatedEnding()
INTERRUPTED = StatedEnding("cancelled", {"type": "interrupted"})
# Ending of a call whose result the log's format leaves out: neither success nor failure
UNRECORDED = StatedEnding("cancelled", {"type": "result_unavailable"})


def failed(text: str, kind: str = "", **more: Any) -> StatedEnding:
    """Failure with a message; its type is the given one, else the exception name at the start of the message."""
    plain = _TAGS.sub("", text).strip()
    found = _TYPE.match(text.lstrip())
    error = {"type": kind or (found[1] if found else "tool_error")}
    if plain:
        error["message"] = shortened(plain, MAX_MESSAGE)
    return StatedEnding("error", error | more)


def remark_of(text: str) -> StatedEnding | None:
    """Ending by a client's remark instead of a result: refused, interrupted, cancelled; None if there is no remark."""
    if len(text) > _MAX_REMARK:
        return None
    for kind, words in _REMARKS:
        if words.match(text):
            return StatedEnding("cancelled" if kind == "interrupted" else "error", failed(text, kind).error)
    return None


def by_words(text: str, endings: Sequence[tuple[str, str, str]]) -> StatedEnding | None:
    """Ending by the first pattern found in the head or the tail of a text, from rows of pattern, status, error type."""
    around = text if len(text) <= 2 * MAX_MESSAGE else f"{text[:MAX_MESSAGE]}\n{text[-MAX_MESSAGE:]}"
    for pattern, status, kind in endings:
        if re.search(pattern, around):
            return StatedEnding(status, failed(text, kind).error)
    return None


def rejection_of(text: str) -> StatedEnding | None:
    """Ending by a client that refused the call before it ran; None if it does not say so."""
    return StatedEnding("rejected", failed(text).error) if _REJECTED.match(text.lstrip()) else None


def output_of(text: str) -> str:
    """Output of a command without the head that Codex writes before it."""
    head, mark, _ = text[:_HEAD_CHARS].partition("Output:")
    lines = head.splitlines()
    if not mark or not lines or not all(line.startswith(_HEAD_WORDS) for line in lines):
        return text
    return text[len(head) + len(mark) :].removeprefix("\n")


def exit_code_of(text: str) -> int | None:
    """Exit code stated at the head or the end of a result; None if there is none.

    Other places are ignored: printed files or logs may mention exit codes, too.
    """
    found = _EXIT.search(_head_of(text)) or _EXIT_LAST.search(text[-500:])
    return int(found[1]) if found else None


def wall_time_of(text: str) -> float | None:
    """Duration of the command in milliseconds as stated by a result; None if not stated."""
    found = _WALL_TIME.search(_head_of(text))
    return float(found[1]) * 1000 if found else None


def _head_of(text: str) -> str:
    """Head that a client writes before an output."""
    return "\n".join(f"\n{text[:4000]}".partition("\nOutput:")[0].splitlines()[: _HEAD_LINES + 1])


def ending_of(result: Any, *, failure: bool | None = None) -> StatedEnding:
    """Ending of a call by its result; `failure` is the log's own flag, None if it has none.

    Objects with an error, an exit code or an HTTP status are left to the folds, which read them.
    """
    text = result if isinstance(result, str) else ""
    if failure is False:
        return GOOD
    code = exit_code_of(text)
    if code:
        return failed(text, f"exit_code_{code}")
    if failure:
        return failed(text or text_of(result) or _words_of(result))
    if isinstance(result, dict) and (
        result.get("success") is False or result.get("ok") is False or result.get("status") == "error"
    ):
        return failed(_words_of(result))
    return failed(text) if code is None and _FAILED.match(text) else GOOD


def _words_of(result: Any) -> str:
    if isinstance(result, dict):
        for name in ("error", "message", "detail", "content", "reason", "output"):
            found = result.get(name)
            if text := (text_of(found.get("message")) if isinstance(found, dict) else text_of(found)):
                return text
    return ""


# Exit code after the output of a command, as written by Gemini CLI and its forks
EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,10})[ \t]*$", re.MULTILINE)

_OUTPUT = re.compile(r"^Output: ", re.MULTILINE)
_FRAME_END = re.compile(r"\n(?:Error: [^\n]*\n)?Exit Code: ")

# Process id line, removed because it would make equal results different
PROCESS = re.compile(r"^Process Group PGID: .*\n?", re.MULTILINE)


def by_exit_code(text: str, code: int | None) -> StatedEnding:
    """Ending of a command by its exit code; None means unknown and counts as success."""
    if not code:
        return GOOD
    start = _OUTPUT.search(text)
    end = _FRAME_END.search(text, start.end()) if start else None
    framed = text[start.end() : end.start()].strip() if start and end else ""
    return failed(framed or text, f"exit_code_{code}")


def code_in(pattern: re.Pattern[str], text: str) -> int | None:
    """Exit code that an agent writes after an output: the last match of the pattern near the end."""
    found = pattern.findall(text[-2000:])
    return int(found[-1]) if found else None


def without_hook_context(text: str) -> str:
    """Return a prompt or a result without what hooks added to it."""
    first, *others = text.split("<hook_context>")
    kept, opened = [first], ""
    for other in others:
        opened += f"<hook_context>{other}"
        _, closed, after = other.partition("</hook_context>")
        if closed:
            kept[-1] = kept[-1].rstrip()
            kept.append(after)
            opened = ""
    return "".join([*kept, opened])
