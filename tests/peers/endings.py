"""Endings of calls and attempts: peers' words translated to status, error and result, or to an exception."""

from __future__ import annotations

import re
from typing import Any

from .case import UnknownWord, refuse_fields

_REFUSALS = frozenset({"blocked", "denied", "refused", "rejected", "vetoed"})

_SEVERITIES = {
    **dict.fromkeys(("transport", "connection", "network", "rate_limit", "rate_limited", "unavailable"), "transient"),
    **dict.fromkeys(("output_validation", "validation", "response_validation"), "validation"),
    **dict.fromkeys(("application", "tool_error", "client", "caller", "bad_request"), "invalid_input"),
    **dict.fromkeys(("server", "internal"), "server_error"),
    **dict.fromkeys(("auth", "forbidden", "unauthorized"), "permission"),
}  # fmt: skip
"""Classes of errors by which a peer names what is one of our severities."""

_TYPES = {
    **dict.fromkeys(("timeout", "timed_out", "deadline"), "TimeoutError"),
    **dict.fromkeys(("transport", "connection", "network", "reset"), "ConnectionResetError"),
    **dict.fromkeys(("dns", "resolution"), "ConnectionError"),
    **dict.fromkeys(("validation", "schema", "bad_request", "invalid_input"), "ValueError"),
    **dict.fromkeys(("permission", "auth", "authorization", "forbidden"), "PermissionError"),
}
"""Classes of errors by which a peer names what is raised here."""

_STATUSES = {"rate_limit": 429, "rate_limited": 429, "throttled": 429, "unavailable": 503, "server": 500}

_CAUSES = frozenset("http_status error error_type error_class exception code".split())
OUTCOME_FIELDS = _CAUSES | frozenset("ok retriable retry_after_s duration_s result".split())
"""Fields by which a case says how one attempt ends."""

_HTTP = re.compile(r"http[ _-]?(\d{3})")
_ERRNO = re.compile(r"\bE(?:AI_)?[A-Z]{4,}\b")
"""In the message of an error of Node's; there such an error carries it as its code, too."""


def contract_of(event: dict[str, Any], answer: str) -> tuple[str, dict[str, Any] | None, Any]:
    """Status, error and result of a call, as our contract has them; a call that just works gives `answer`."""
    result, told, error_class = event.get("result"), event.get("error"), event.get("error_class")
    if isinstance(result, dict) and (str(result.get("status", "")).lower() in _REFUSALS or "deniedReason" in result):
        return "cancelled", None, None
    ok = event.get("ok", not told and (event.get("http_status") or 0) < 400)
    error: dict[str, Any] = {}
    if not ok or told is not None or error_class:
        parts = told if isinstance(told, dict) else {"message": told, "type": error_class}
        error = {
            "http_status": event.get("http_status"),
            "message": parts.get("message"),
            "type": event.get("error_type") or parts.get("type"),
            "severity": event.get("severity") or _SEVERITIES.get(str(error_class)),
        }
        error = {name: value for name, value in error.items() if value is not None}
    status = event.get("status") or ("success" if ok else "timeout" if error_class == "timeout" else "error")
    if told is None and not error_class and ok and result is None and status == "success":
        result = answer
    return status, error or None, result


def failure_of(event: dict[str, Any]) -> Exception:
    """Exception that a tool raises to fail as an event says."""
    error_class, told = str(event.get("error_class") or ""), event.get("error")
    status = event.get("http_status", _STATUSES.get(error_class))
    if isinstance(told, dict):
        event, told = {**told, **event}, told.get("message")
    kind = str(event.get("error_type") or event.get("exception") or _TYPES.get(error_class) or "ToolError")
    if not kind.isidentifier():
        raise UnknownWord(f"error type {kind!r}")
    error = type(kind, (Exception,), {})(told or (f"HTTP {status}" if status else "it failed"))
    code = event.get("code") or next(iter(_ERRNO.findall(str(told or ""))), None)
    shown = {"status_code": status, "retry_after": event.get("retry_after_s"), "code": code}
    for name, value in (shown | {"retriable": event.get("retriable")}).items():
        if value is not None:
            setattr(error, name, value)
    return error


def outcome_of(told: Any) -> dict[str, Any]:
    """How one attempt ends, in whatever form a case says it: a letter, a word, an HTTP status or an object.

    Raises UnknownWord: it says nothing that is known here.
    """
    if isinstance(told, dict):
        refuse_fields(told, OUTCOME_FIELDS, "an outcome")
        failed = told.get("error") or told.get("error_class") or told.get("exception") or told.get("error_type")
        made = {"ok": not failed and (told.get("http_status") or 0) < 400, **told}
        # A failure of which nothing else is said is one that may pass.
        return made if made["ok"] or _CAUSES & made.keys() else {"retriable": True, **made}
    if isinstance(told, int):  # true and false among them
        return {"ok": told} if isinstance(told, bool) else {"ok": told < 400, "http_status": told}
    word = str(told)
    if word in {"S", "ok", "success"}:
        return {"ok": True}
    if word in {"F", "fail", "failed", "failure", "error"}:
        return {"ok": False, "retriable": True}
    if word in _TYPES or word in _STATUSES:
        return {"ok": False, "error_class": word}
    if (status := _HTTP.fullmatch(word.lower())) is not None:
        return outcome_of(int(status[1]))
    if word.isupper() and word.startswith("E"):
        return {"ok": False, "error": word, "code": word}
    raise UnknownWord(f"outcome {word!r}")
