"""Errors with a meaning of their own: neutral ones (refusals, cancellations, guards), exit codes, unknown tools.

A user's denial, a sibling cancelled with a failed parallel call and a call that was never made are neutral: neither
success nor failure. The tables are explained in docs/classification.md.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...schemas.vocabulary import GUARD_REFUSAL, FailureSeverity

MAX_TYPE_CHARS = 256  # Longest error type or code; longer texts are not read and not cached

_NOT_LETTERS = re.compile(r"[^a-z0-9]+")
_DENIED = frozenset(
    """userrejected userdenied rejectedbyuser deniedbyuser permissiondeniedbyuser userdeclined declined
    tooluserejected approvaldenied approvalrejected""".split()
)
_CANCELLED = frozenset(
    """siblingerror siblingcancelled aborted aborterror cancelled canceled cancellederror cancelederror
    cancellationerror cancelledexception operationcanceledexception taskcanceledexception interrupted
    keyboardinterrupt userinterrupt userabort circuitopen circuitopenerror circuitbreakeropen toolloop blockedbyguard
    callnotpermitted approvalrequired guaranteeexceeded keyconflict inflight resultunavailable""".split()
)
# Exceptions by which runtimes cancel running work, for any reason
_ABORTS = frozenset(
    """aborterror cancellederror cancelederror cancellationerror cancelledexception operationcanceledexception
    taskcanceledexception cancellationexception""".split()
)

_TIME_LIMIT = re.compile(r"time[ -]?out|timed out", re.IGNORECASE)
_HEAD_CHARS = 200
_REFUSED = re.compile(
    r"""the\ user\ doesn't\ want\ to\ (?:proceed|take\ this\ action)
      | the\ user\ (?:has\ )?(?:rejected|declined|denied|refused)\b
      | (?:the\ )?user\ chose\ (?:not\ )?to\ (?:skip|reject|decline|deny|refuse|run|proceed)
      | permission\ (?:to\ use\ \S[^\n]*|for\ this\ action)\ has\ been\ denied
      | user\ (?:rejected|declined|denied)\b | [^\n]{0,80}\b(?:rejected|declined|denied)\ by\ (?:the\ )?user\b""",
    re.IGNORECASE | re.VERBOSE,
)
_STOPPED = re.compile(
    r"""[^\n]{0,80}\b(?:interrupted|cancell?ed|aborted|stopped)\ by\ (?:the\ )?user\b
      | (?:the\ )?user\ (?:has\ )?cancell?ed\b | sibling\ tool\ call\ errored | cancelled:\ parallel\ tool\ call""",
    re.IGNORECASE | re.VERBOSE,
)
# Lines that an agent's client adds above the message
_HARNESS_LINE = re.compile(r"\s*(?:error:\s*)?(?:(?:process exited with|exit) code:? -?\d{1,10}\n\s*)?", re.IGNORECASE)

_EXIT_CODE = re.compile(r"exit_?(?:code|status)?[ _:]?(-?[0-9]{1,10})$", re.IGNORECASE)
_CRASH_FROM = 131
_CRASH_TO = 159
_WINDOWS_FAULT = 0xC0000000
_UNSIGNED = 1 << 32
_BY_EXIT_CODE = {
    124: FailureSeverity.TIMEOUT,  # timeout(1)
    126: FailureSeverity.PERMISSION,  # found, but not executable
    127: FailureSeverity.NOT_FOUND,  # no such command
    141: FailureSeverity.VALIDATION,  # SIGPIPE: whoever read from it had enough
    142: FailureSeverity.TIMEOUT,  # SIGALRM
    143: FailureSeverity.VALIDATION,  # SIGTERM: somebody ended it
    152: FailureSeverity.TIMEOUT,  # SIGXCPU: its processor time is used up
    0xC000013A: FailureSeverity.VALIDATION,  # Ctrl-C on Windows
}
_REMOTE_COMMANDS = frozenset({"ssh", "scp", "sftp", "sshpass", "mosh", "autossh"})
_CONNECTION_LOST = 255  # Exit code of ssh and similar programs without a connection; for other programs it is -1


def neutral_reason(error_type: str, message: str = "") -> str:
    """Return `denied`, `cancelled`, or empty if neither the error type nor the message's first words match.

    A cancellation that a time limit caused is a timeout and not neutral.
    """
    reason = _neutral_reason(error_type) if len(error_type) <= MAX_TYPE_CHARS else ""
    if reason == "cancelled" and message and _TIME_LIMIT.search(message[:_HEAD_CHARS]) and _aborts(error_type):
        reason = ""
    if reason or not message:
        return reason
    head = message[:_HEAD_CHARS]
    if not ("ser" in head or "ermission" in head or "ibling" in head or "arallel" in head):
        return ""
    start = found.end() if (found := _HARNESS_LINE.match(head)) else 0
    if _REFUSED.match(head, start):
        return "denied"
    return "cancelled" if _STOPPED.match(head, start) else ""


def by_exit_code(code: int, command: str = "") -> FailureSeverity:
    """Severity of a command's exit code, as `normal_exit_code` gives it; `command` is the word of the command.

    1 to 125 are answers, and so are 128 (git's own), 129 (usage; SIGHUP), 130 (Ctrl-C) and 143 (SIGTERM).
    """
    if code == _CONNECTION_LOST and command in _REMOTE_COMMANDS:
        return FailureSeverity.TRANSIENT
    known = _BY_EXIT_CODE.get(code)
    if known is not None:
        return known
    broken = _CRASH_FROM <= code <= _CRASH_TO or code >= _WINDOWS_FAULT
    return FailureSeverity.CRASH if broken else FailureSeverity.VALIDATION


@lru_cache(maxsize=2048)
def _neutral_reason(error_type: str) -> str:
    plain = _plain(error_type)
    if plain in _DENIED:
        return "denied"
    return "cancelled" if plain in _CANCELLED or _aborts(error_type) else ""


def _aborts(error_type: str) -> bool:
    return _plain(error_type.rsplit(".", 1)[-1]) in _ABORTS


def is_refusal(error_type: str) -> bool:
    """Whether it is the error type of a call that a guard refused: `BlockedByGuard`, or `blocked_by_guard` of hooks."""
    return len(error_type) <= MAX_TYPE_CHARS and _plain(error_type) == GUARD_REFUSAL.lower()


def _plain(error_type: str) -> str:
    return _NOT_LETTERS.sub("", error_type.lower())


def exit_code_of(error_type: str) -> str:
    """Return the exit code in an error type such as `exit_code_137`, signals as 128 + n; empty without one."""
    return _exit_code_of(error_type) if len(error_type) <= MAX_TYPE_CHARS else ""


@lru_cache(maxsize=2048)
def _exit_code_of(error_type: str) -> str:
    found = _EXIT_CODE.search(error_type)
    return normal_exit_code(int(found.group(1))) if found else ""


def normal_exit_code(code: int) -> str:
    """An exit code as text; a signal (negative, as Python reports it) as 128 + n, a fault of Windows without sign."""
    if code >= 0:
        return str(code)
    return str(code + _UNSIGNED if _WINDOWS_FAULT <= code + _UNSIGNED < _UNSIGNED - 128 else 128 - code)


# Number of characters of a message that are searched: the fault is named first, long lists of tools may follow
MAX_MESSAGE_CHARS = 600

_TYPES = frozenset(
    """nosuchtool nosuchtoolerror ainosuchtoolerror toolnotfound toolnotfounderror toolnotfoundexception unknowntool
    unknowntoolerror unavailabletool unavailabletoolerror unavailabletoolagenterror toolnotregistered
    toolnotregisterederror functionnotfound functionnotfounderror""".split()
)
_PLAIN = re.compile(
    r"\b(?:no such tool|unknown tool|unavailable tool|(?:not a valid|is an invalid) tool)\b", re.IGNORECASE
)
_BEFORE = re.compile(r"\b(?:tool|function|action)(?: with)?(?: named?)?[\s:]*[\"'`]*$", re.IGNORECASE)
_AFTER = re.compile(
    r"""["'`]*\s*
    (?: (?:was\ |is\ |could\ |has\ )? not\ (?:be(?:en)?\ )? (?:found|available|registered|defined)
      | (?:does|do) (?:\ not|n['’]t) \ exist )""",
    re.IGNORECASE | re.VERBOSE,
)


@lru_cache(maxsize=1024)
def _is_type(word: str) -> bool:
    return _NOT_LETTERS.sub("", word.lower()) in _TYPES


def is_unknown_tool(tool_name: str, error_type: str, code: str, message: str) -> bool:
    """Whether a failed call was answered by "there is no such tool" (docs/detection.md).

    By error type or code first, then by message. The forms, and where they come from:

    - JSON-RPC `-32601` (method not found), and "Unknown tool: NAME": Model Context Protocol, Tools, Error Handling; its
      `-32602` alone also means bad arguments and is not enough.
    - `AI_NoSuchToolError`, "tried to call unavailable tool 'NAME'": Vercel AI SDK, opencode.
    - "No such tool available: NAME": Claude Code.
    - "NAME is not a valid tool, try one of […]": LangChain, LangGraph.
    - "Unknown tool NAME, should be instead one of […]": smolagents; "Unknown tool name: 'NAME'": Pydantic AI.
    - "Tool NAME not found", "Tool "NAME" not found in registry", "Tool with name NAME not found", "Function NAME not
      found", "Action 'NAME' don't exist": OpenAI Agents SDK, openclaw, Gemini CLI, LlamaIndex, AutoGen, CrewAI. Here
      the name of the called tool must stand between, so that a tool whose search found nothing does not count.

    A shell's "command not found" is the shell's answer: the shell tool exists.
    """
    if code == "-32601" or _is_type(error_type[:MAX_TYPE_CHARS]) or _is_type(code[:MAX_TYPE_CHARS]):
        return True
    head = message[:MAX_MESSAGE_CHARS]
    if "tool" in head.lower() and _PLAIN.search(head):
        return True
    place = head.find(tool_name)
    return (
        place > 0
        and _BEFORE.search(head[:place]) is not None
        and _AFTER.match(head, place + len(tool_name)) is not None
    )
