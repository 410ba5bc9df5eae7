"""Idempotency keys: the caller's, a hook's, or one computed from the call itself (docs/guard.md, Duplicates).

A computed key is a SHA-256 digest of a canonical JSON array, so that no delimiter inside a name can make two calls
equal. Every parameter counts unless the tool's registration names it volatile. Strings are compared exactly, white
space included. Parameters without a canonical JSON form cannot be compared, as the text of an object does not identify
it.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ..privacy import PrivacyFilter
from ..request import GuardedCall

MAX_DEPTH = 100
"""Parameters nested deeper than this are not compared."""

_EXACT = 2**53
_KEY_HEADERS = frozenset({"idempotency-key", "idempotency_key", "x-idempotency-key"})
_HEADERS = ("headers", "http_headers", "extra_headers")


class NotComparable(Exception):
    """A value without a canonical JSON form: an object, bytes, NaN, a lone surrogate, a cycle."""


def computed_key(call: GuardedCall, privacy: PrivacyFilter, scope: str = "session") -> str | None:
    """Digest of namespace, tool, parameters, session, actor and tenant; None if parameters cannot be compared."""
    session = call.session_id if scope == "session" else None
    try:
        params = _params(call)
        parts = [call.namespace, call.name, params, session, call.actor_id, call.tenant_id]
        return f"auto:{privacy.digest(_encode(parts, exact=call.tool.exact_types))}"
    except NotComparable:
        return None


def store_key(call: GuardedCall, key: str, privacy: PrivacyFilter, scope: str = "session") -> str:
    """Return the key in the store: unique by workspace, tenant, actor, session and tool.

    The caller's key may hold anything, so only its digest is stored.
    """
    session = call.session_id if scope == "session" else None
    parts = [call.workspace_id, call.tenant_id, call.actor_id, session, call.namespace, call.name, key]
    try:
        return privacy.digest(orjson.dumps(parts))
    except orjson.JSONEncodeError:  # a key may hold a lone surrogate
        return privacy.digest(json.dumps(parts).encode())


def params_digest(call: GuardedCall, privacy: PrivacyFilter) -> str:
    """Digest of the parameters: the same key with another digest is a conflict.

    Parameters that cannot be compared equal no others: their digest is made of the request's id.
    """
    try:
        return privacy.digest(_encode(_params(call), exact=call.tool.exact_types))
    except NotComparable:
        return f"unique:{call.request_id}"


def is_comparable(digest: str) -> bool:
    """Whether a digest was made of parameters that can be compared."""
    return not digest.startswith("unique:")


def receives_key(call: GuardedCall, function: Callable[..., Any]) -> bool:
    """Whether a tool receives the call's key: as parameter `idempotency_key`, or in a header of its parameters.

    If the function has the parameter and the caller did not pass it, the key is passed.
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


def _params(call: GuardedCall) -> dict[str, Any]:
    volatile = call.tool.volatile_params
    exact = call.tool.exact_types
    made = _plain_members({name: value for name, value in call.args.items() if name not in volatile}, 0, exact=exact)
    return dict(sorted(made.items())) if exact else made  # arguments by name have no order


def _encode(value: Any, *, exact: bool) -> bytes:
    """Encode as canonical JSON: no spaces, and sorted names unless types are exact.

    Raises:
        NotComparable: text that is not valid Unicode, or a number too long to be written.
    """
    try:
        return orjson.dumps(value, option=None if exact else orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # whole numbers beyond 64 bits, which JSON allows
        try:
            return json.dumps(value, sort_keys=not exact, ensure_ascii=False, separators=(",", ":")).encode()
        except ValueError as error:
            raise NotComparable from error


def _plain_members(value: Mapping[str, Any], depth: int, *, exact: bool) -> dict[str, Any]:
    made = {}
    for name, inner in value.items():
        if type(name) is not str:
            raise NotComparable
        # Names that begin with U+0000 are reserved, see below.
        name = f"\x00{name}" if name[:1] == "\x00" else name  # noqa: PLW2901 - the same name, written apart
        made[name] = inner if type(inner) is str else _plain(inner, depth + 1, exact=exact)
    return made


def _plain(value: Any, depth: int, *, exact: bool) -> Any:
    """Return a JSON value, with equal numbers in one form unless types are exact.

    Raises:
        NotComparable: another type.
    """
    kind = type(value)
    if kind is str or kind is bool or kind is int or value is None:
        return value
    if kind is float and math.isfinite(value):
        # -0.0 equals 0.0, and 1.0 equals 1.
        return int(value) if not exact and value.is_integer() and abs(value) < _EXACT else value
    if depth < MAX_DEPTH:
        if kind is dict:
            return _plain_members(value, depth, exact=exact)
        if kind is list:
            return [_plain(inner, depth + 1, exact=exact) for inner in value]
        if kind is tuple:  # differs from a list, as the tool can distinguish them
            return {"\x00tuple": [_plain(inner, depth + 1, exact=exact) for inner in value]}
    raise NotComparable
