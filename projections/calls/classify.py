"""Failure classification: how bad is this failure, and is it one at all? (seed 1, design 3).

First match wins: the reporter's own severity, a dangerous command, the status, HTTP status, error type or code,
message phrases on word boundaries, `server_error`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from ...schemas.vocabulary import Severity
from .errors import MAX_TYPE_CHARS, exit_code_of, normal_exit_code

MAX_MESSAGE_CHARS = 2000
"""Only this much of a message is searched for phrases."""

_BY_HTTP_STATUS = {
    401: Severity.PERMISSION,
    403: Severity.PERMISSION,
    404: Severity.NOT_FOUND,
    410: Severity.NOT_FOUND,
    408: Severity.TIMEOUT,
    504: Severity.TIMEOUT,
    409: Severity.TRANSIENT,
    425: Severity.TRANSIENT,
    429: Severity.TRANSIENT,
    400: Severity.INVALID_INPUT,
    413: Severity.INVALID_INPUT,
    422: Severity.INVALID_INPUT,
}

# Error types, error codes and signals, compared in lower case without separators; suffixes cover class names.
_BY_TYPE_EXACT: dict[str, Severity] = {
    **dict.fromkeys("etimedout esockettimedout deadlineexceeded".split(), Severity.TIMEOUT),
    **dict.fromkeys(
        """econnreset econnrefused econnaborted enotfound eaiagain epipe enetunreach ehostunreach enetdown eagain
        ebusy brokenpipeerror connectionerror connectionreseterror connectionrefusederror connectionabortederror
        gaierror ratelimiterror ratelimitexceeded toomanyrequests throttlingexception slowdown unavailable
        serviceunavailable remotedisconnected incompleteread apiconnectionerror overloadederror""".split(),
        Severity.TRANSIENT,
    ),
    **dict.fromkeys(
        """permissionerror eacces eperm unauthorized forbidden accessdenied permissiondenied authenticationerror
        permissiondeniederror unauthenticated authorizationerror""".split(),
        Severity.PERMISSION,
    ),
    **dict.fromkeys(
        """filenotfounderror enoent notfound notfounderror notadirectoryerror enotdir modulenotfounderror nosuchkey
        nosuchbucket doesnotexist""".split(),
        Severity.NOT_FOUND,
    ),
    **dict.fromkeys(
        """validationerror typeerror valueerror keyerror invalidargument invalidparams badrequest badrequesterror
        einval invalidinput argumenterror invalidrequesterror invalidparameter missingparameter isadirectoryerror
        inputvalidationerror zoderror 32602""".split(),
        Severity.INVALID_INPUT,
    ),
    **dict.fromkeys("outputvalidationerror responsevalidationerror schemaerror".split(), Severity.VALIDATION),
    **dict.fromkeys(
        """memoryerror outofmemoryerror oom oomkilled segmentationfault sigsegv sigkill sigabrt sigbus sigill sigfpe
        crash processcrashed systemerror recursionerror stackoverflowerror brokenprocesspool 134 136 137 139""".split(),
        Severity.CRASH,
    ),
    **dict.fromkeys(
        """checksumerror checksummismatch unicodedecodeerror unicodeerror jsondecodeerror decodeerror badzipfile
        badgzipfile corruption datacorruption dataloss zliberror eoferror integrityerror""".split(),
        Severity.CORRUPTION,
    ),
}
_NOT_LETTERS = re.compile(r"[^a-z0-9]+")
_TEXT_FIELDS = ("message", "stderr", "content", "body", "output", "stdout")

_PHRASES: dict[Severity, tuple[str, str]] = {
    Severity.NOT_FOUND: (
        "not found|does not exist|doesn't exist|no such|cannot find",
        r"not found|does not exist|doesn't exist|no such (?:file|directory|key|table|column)|cannot find",
    ),
    Severity.PERMISSION: (
        "denied|unauthori|forbidden|not permitted|authentication failed",
        r"permission denied|access (?:is )?denied|unauthori[sz]ed|forbidden|not permitted|authentication failed",
    ),
    Severity.TIMEOUT: (
        "timeout|time out|time-out|timed out|deadline exceeded|etimedout",
        r"time[ -]?out|timed out|deadline exceeded|etimedout",
    ),
    Severity.TRANSIENT: (
        "rate limit|too many requests|quota|connection re|connection abo|temporarily unavailable|overloaded|econn|enotfound|eai_again|socket hang up|broken pipe|unreachable|name resolution|service unavailable",
        r"rate limit(?:ed)?|too many requests|(?<!disk )quota|connection (?:reset|refused|aborted)|temporarily unavailable|overloaded|econn(?:reset|refused|aborted)|enotfound|eai_again|socket hang up|broken pipe|(?:network|host) is unreachable|temporary failure in name resolution|service unavailable",
    ),
    Severity.CRASH: (
        "segfault|segmentation fault|core dumped|crash|out of memory|oom|killed|panicked",
        r"segfault|segmentation fault|core dumped|crash(?:ed)?|out of memory|oom[- ]?killed|killed by signal|was killed|panicked",
    ),
    Severity.CORRUPTION: (
        "mismatch|corrupt|malformed archive",
        r"checksum mismatch|corrupt(?:ed|ion)?|(?:hash|digest) mismatch|malformed archive",
    ),
    Severity.INVALID_INPUT: (
        "invalid|required|must be|expected|missing|unknown ",
        r"invalid|required|must be|expected|missing|unknown (?:option|argument|parameter)",
    ),
}  # fmt: skip
"""In the seed's order: text of which each phrase holds some, found much faster than a phrase; and the phrases."""
_SEARCHES = tuple(
    (severity, tuple(needles.split("|")), re.compile(rf"\b(?:{words})\b").search)
    for severity, (needles, words) in _PHRASES.items()
)


_SECURITY = re.compile(
    r"\b(?:security (?:violation|policy|concern|risk|alert|error)|malicious|injection|exploit|privilege escalation)\b"
)


class Failure(NamedTuple):
    """What is known of a failure, whoever reported it: the event's error or the raw result.

    Attributes:
        type: exception class or error category, as given.
        message: free text; searched, never stored.
        http_status: HTTP status, None if there was none.
        code: error code or exit code as text, empty if none.
    """

    type: str = ""
    message: str = ""
    http_status: int | None = None
    code: str = ""


@lru_cache(maxsize=4096)
def _by_type(name: str) -> Severity | None:
    plain = _NOT_LETTERS.sub("", name.rsplit(".", 1)[-1].lower())
    found = _BY_TYPE_EXACT.get(plain)
    if found is None and "timeout" in plain:
        return Severity.TIMEOUT
    if found is None and plain.endswith("validationerror"):
        return Severity.INVALID_INPUT
    return found


def by_http_status(status: int) -> Severity | None:
    """Severity of an HTTP status; None below 400."""
    known = _BY_HTTP_STATUS.get(status)
    if known is not None or status < 400:
        return known
    return Severity.SERVER_ERROR if status >= 500 else Severity.VALIDATION


def by_message(message: str) -> Severity | None:
    """Severity that a message's phrases suggest, in the seed's order, on word boundaries."""
    text = message[:MAX_MESSAGE_CHARS].lower()
    for severity, needles, search in _SEARCHES:
        for needle in needles:
            if needle in text:
                if search(text):
                    return severity
                break
    return None


def speaks_of_security(message: str) -> bool:
    """Whether a message speaks of a security concern; by itself that says nothing (design 3, Failure classification)."""
    return _SECURITY.search(message[:MAX_MESSAGE_CHARS].lower()) is not None


def classify(failure: Failure, *, status: str, dangerous: bool, override: Severity | None = None) -> Severity:
    """Severity of a failed call; `dangerous` says its command matched a security rule."""
    if override is not None:
        return override
    if dangerous:
        return Severity.SECURITY
    if status == "timeout":
        return Severity.TIMEOUT
    if failure.http_status is not None and (found := by_http_status(failure.http_status)) is not None:
        return found
    for name in (failure.type, failure.code or exit_code_of(failure.type)):
        if 0 < len(name) <= MAX_TYPE_CHARS and (found := _by_type(name)) is not None:
            return found
    return (by_message(failure.message) if failure.message else None) or Severity.SERVER_ERROR


_BEYOND = 1 << 63


def _number(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _BEYOND:
        return None  # neither codes nor statuses, and nothing that a decision or a column could hold
    return int(value)


def failure_in_result(result: Any) -> Failure | None:
    """The failure a raw result reports although its call "succeeded"; None if it reports none.

    A truthy `error`, a status of 400 or more, MCP's `isError: true`, or a non-zero exit code;
    `{"error": null}` is a success (design 3).
    """
    if not isinstance(result, dict):
        return None
    error = result.get("error")
    status = (
        _number(result.get("http_status")) or _number(result.get("status_code")) or _number(result.get("statusCode"))
    )
    exit_code = next(
        (code for name in ("exit_code", "exitCode", "returncode") if (code := _number(result.get(name))) is not None),
        0,
    )
    is_error = result.get("isError") is True or result.get("is_error") is True
    if not error and not is_error and not exit_code and (status is None or status < 400):
        return None
    details = error if isinstance(error, dict) else {}
    message = details.get("message") if details else error
    if not isinstance(message, str):
        text = next((value for name in _TEXT_FIELDS if isinstance(value := result.get(name), str) and value), "")
        message = text[:MAX_MESSAGE_CHARS]
    kind = result.get("error_type") or details.get("type") or ""
    return Failure(
        type=str(kind),
        message=message,
        http_status=status if status is not None and status >= 400 else None,
        code=str(details.get("code") or "") or (normal_exit_code(exit_code) if exit_code else ""),
    )
