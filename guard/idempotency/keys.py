"""Idempotency keys: the caller's, a hook's, or one computed from the call itself (docs/guard.md, Duplicates).

A computed key is a SHA-256 digest of a canonical JSON array, so that no delimiter inside a name can make two calls look
like one. Every parameter counts unless the tool's registration names it volatile, and strings count as they are: two
commands that differ in a blank are two commands. Parameters that have no canonical JSON form cannot be compared, as how
an object prints does not say what it is.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ..privacy import Privacy
from ..request import Call

MAX_DEPTH = 100
"""Parameters nested deeper are not compared."""

_EXACT = 2**53
_KEY_HEADERS = frozenset({"idempotency-key", "idempotency_key", "x-idempotency-key"})
_HEADERS = ("headers", "http_headers", "extra_headers")


class NotComparable(Exception):
    """A value without a canonical JSON form: an object, bytes, NaN, half a surrogate pair, a cycle."""


def computed_key(call: Call, privacy: Privacy, scope: str = "session") -> str | None:
    """Digest of namespace, tool, parameters, session, actor and tenant; None where parameters cannot be compared."""
    session = call.session_id if scope == "session" else None
    try:
        params = _params(call)
        parts = [call.namespace, call.name, params, session, call.actor_id, call.tenant_id]
        return f"auto:{privacy.digest(_encode(parts))}"
    except NotComparable:
        return None


def store_key(call: Call, key: str, privacy: Privacy, scope: str = "session") -> str:
    """Key under which a call is kept: of its workspace, tenant, actor, session and tool, so that no other's meets it.

    What the caller chose as a key may hold anything, so only its digest is kept.
    """
    session = call.session_id if scope == "session" else None
    parts = [call.workspace_id, call.tenant_id, call.actor_id, session, call.namespace, call.name, key]
    try:
        return privacy.digest(orjson.dumps(parts))
    except orjson.JSONEncodeError:  # a key may hold half a surrogate pair
        return privacy.digest(json.dumps(parts).encode())


def params_digest(call: Call, privacy: Privacy) -> str:
    """Digest of the parameters: same key and another digest is a conflict.

    Parameters that cannot be compared are never the same as any: their digest is the request's own.
    """
    try:
        return privacy.digest(_encode(_params(call)))
    except NotComparable:
        return f"unique:{call.request_id}"


def is_comparable(digest: str) -> bool:
    """Whether a digest of parameters says what they are."""
    return not digest.startswith("unique:")


def receives_key(call: Call, function: Callable[..., Any]) -> bool:
    """Whether a tool is given the call's key: as parameter `idempotency_key`, or in a header of its parameters.

    A function that asks for the parameter and was not given it gets the key.
    """
    key, args = call.given_key, call.args
    if key is None:
        return False
    held = args.get("idempotency_key")
    if held is None and "idempotency_key" not in args and _takes_key(function):
        call.args = {**args, "idempotency_key": key}
        return True
    if type(held) is str and held == key:
        return True
    for place in _HEADERS:
        headers = args.get(place)
        if type(headers) is dict:
            for name, value in headers.items():
                if type(name) is str and name.lower() in _KEY_HEADERS and type(value) is str and value == key:
                    return True
    return False


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        found = inspect.signature(function).parameters.get("idempotency_key")
    except Exception:  # noqa: BLE001 - it has no signature, or is an object that refuses to be looked at
        return False
    return found is not None and found.kind in {found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY}


def _params(call: Call) -> dict[str, Any]:
    volatile = call.tool.volatile_params
    return _plain_members({name: value for name, value in call.args.items() if name not in volatile}, 0)


def _encode(value: Any) -> bytes:
    """Canonical JSON: names sorted, no spaces.

    Raises:
        NotComparable: text that is no Unicode, or a number too long to be written.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # a whole number beyond 64 bits, which JSON allows
        try:
            return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
        except ValueError as error:
            raise NotComparable from error


def _plain_members(value: Mapping[str, Any], depth: int) -> dict[str, Any]:
    made = {}
    for name, inner in value.items():
        if type(name) is not str:
            raise NotComparable
        # Names that begin with U+0000 are ours, see below.
        name = f"\x00{name}" if name[:1] == "\x00" else name  # noqa: PLW2901 - the same name, written apart
        made[name] = inner if type(inner) is str else _plain(inner, depth + 1)
    return made


def _plain(value: Any, depth: int) -> Any:
    """A JSON value with equal numbers written alike; only the very types that JSON is read as.

    Raises:
        NotComparable: something else.
    """
    kind = type(value)
    if kind is str or kind is bool or kind is int or value is None:
        return value
    if kind is float and math.isfinite(value):
        # -0.0 and 0.0 are one number, and so are 1.0 and 1.
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
    if depth < MAX_DEPTH:
        if kind is dict:
            return _plain_members(value, depth)
        if kind is list:
            return [_plain(inner, depth + 1) for inner in value]
        if kind is tuple:  # never the same as a list: the tool can tell them apart
            return {"\x00tuple": [_plain(inner, depth + 1) for inner in value]}
    raise NotComparable
