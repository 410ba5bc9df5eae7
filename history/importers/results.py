"""How a call ended, read from what its result says, where a log has no field for it.

The words are those the clients write: Claude Code and Codex for refusals and interruptions, Codex, OpenHands and
Claude Code for exit codes, agent frameworks for errors they hand to the model as text.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .values import shortened, text_of

MAX_MESSAGE = 2000
"""Characters of an error's message; folds search no more."""

_MAX_REMARK = 2000
"""A client's own remark on a call is no longer; what is longer is a result that quotes one."""

_SIBLING = r"(?:<tool_use_error>)?(?:Sibling tool call errored|Cancelled: parallel tool call)"
_STOPPED = (
    r"\[Request interrupted by user|(?:Wall time: [\d.]+ seconds\n)?aborted(?: by user\b[^\n]*)?\s*\Z"
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
    (kind, re.compile(rf"\A\s*(?:Error: )?(?:{words})", re.IGNORECASE))
    for kind, words in (
        ("sibling_error", _SIBLING),
        ("interrupted", _STOPPED),
        ("blocked_by_guard", _HOOK),
        ("user_rejected", _REFUSED),
    )
)
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
_TYPE = re.compile(r"\s*(?:<tool_use_error>)?\s*(?:Error: )?([A-Z]\w{2,60}(?:Error|Exception))\s*[:(]")
_TAGS = re.compile(r"</?tool_use_error>")


class Ending(NamedTuple):
    """How a call ended.

    Attributes:
        status: of the event.
        error: of the event; None where nothing went wrong.
    """

    status: str = "success"
    error: dict[str, Any] | None = None


GOOD = Ending()
INTERRUPTED = Ending("cancelled", {"type": "interrupted"})


def failed(text: str, kind: str = "", **more: Any) -> Ending:
    """A failure with a message; its type as told, else the exception that the message begins with."""
    plain = _TAGS.sub("", text).strip()
    found = _TYPE.match(text)
    error = {"type": kind or (found[1] if found else "tool_error")}
    if plain:
        error["message"] = shortened(plain, MAX_MESSAGE)
    return Ending("error", error | more)


def remark_of(text: str) -> Ending | None:
    """What a client says in place of a result: refused, interrupted, cancelled with another call; None if nothing."""
    if len(text) > _MAX_REMARK:
        return None
    for kind, words in _REMARKS:
        if words.match(text):
            return Ending("cancelled" if kind == "interrupted" else "error", failed(text, kind).error)
    return None


def exit_code_of(text: str) -> int | None:
    """The exit code that a result states, in its head or as its last words; None if it states none.

    Nowhere else: what a file or a log holds may speak of exit codes, too.
    """
    found = _EXIT.search(_head_of(text)) or _EXIT_LAST.search(text[-500:])
    return int(found[1]) if found else None


def wall_time_of(text: str) -> float | None:
    """Milliseconds that a result says its command took; None if it does not."""
    found = _WALL_TIME.search(_head_of(text))
    return float(found[1]) * 1000 if found else None


def _head_of(text: str) -> str:
    """What a client writes before an output."""
    return "\n".join(f"\n{text[:4000]}".partition("\nOutput:")[0].splitlines()[: _HEAD_LINES + 1])


def ending_of(result: Any, *, failure: bool | None = None) -> Ending:
    """How a call ended by its result; `failure` is what the log says, None if it says nothing.

    An object that holds an error, an exit code or an HTTP status is left to the folds, which read it themselves.
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


EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,10})[ \t]*$", re.MULTILINE)
"""How Gemini CLI and what descends from it state an exit code behind the output of a command."""

_FRAME = re.compile(r"^Output: (.*?)\n(?:Error: [^\n]*\n)?Exit Code: ", re.MULTILINE | re.DOTALL)
"""The output of a command within what those agents write around it."""

PROCESS = re.compile(r"^Process Group PGID: .*\n?", re.MULTILINE)
"""The number of the process, which makes every run of a command look like another result."""


def by_exit_code(text: str, code: int | None) -> Ending:
    """The end of a command by its exit code; None: none is known, and nothing is held against it."""
    if not code:
        return GOOD
    framed = _FRAME.search(text)
    return failed(framed[1].strip() or text if framed else text, f"exit_code_{code}")


def code_in(pattern: re.Pattern[str], text: str) -> int | None:
    """The exit code that an agent writes behind an output: the last that the pattern finds in its last words."""
    found = pattern.findall(text[-2000:])
    return int(found[-1]) if found else None
