"""Copies of results and exceptions for dedupe stores: kept whole or not at all, bounded in size."""

from __future__ import annotations

import copy
import sys
from typing import Any, NamedTuple

from ..streams import is_stream

MAX_RESULT_BYTES = 4 * 1024 * 1024
"""Larger results are not kept."""

MAX_ERROR_BYTES = 65_536
"""Exceptions that hold more are answered by their code and message."""

MAX_NODES = 20_000
"""Results of more parts are not kept."""

_IMMUTABLE = frozenset({str, bytes, int, float, bool, type(None)})

_PART_BYTES = 64
"""Least that a part takes, its place in a container included."""


class StoredResult(NamedTuple):
    """Stored form of a result.

    Attributes:
        payload: a copy that nobody else holds.
        size: bytes it takes, roughly.
        whole: False where nothing is kept.
    """

    payload: Any = None
    size: int = 0
    whole: bool = False


def kept_copy(output: Any) -> StoredResult:
    """A copy of a result, if it can be copied and is not too large; never raises."""
    if type(output) in _IMMUTABLE:
        size = sys.getsizeof(output)
        return StoredResult(output, size, whole=True) if size <= MAX_RESULT_BYTES else StoredResult()
    try:
        size = size_of(output)
        if size > MAX_RESULT_BYTES or is_stream(output):
            return StoredResult()
        made = copy.deepcopy(output)
        if type(made) is not type(output):
            return StoredResult()
    except Exception:  # noqa: BLE001 - a socket, a lock, 5,000 levels, an object that refuses
        return StoredResult()
    return StoredResult(made, size, whole=True)


def size_of(value: Any) -> int:
    """Bytes that a value takes with all it holds, roughly; above `MAX_RESULT_BYTES` where it has many parts."""
    total, seen, waiting = 0, set(), [value]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        total += max(_PART_BYTES, sys.getsizeof(value, _PART_BYTES))
        if total > MAX_RESULT_BYTES or len(seen) > MAX_NODES:
            return MAX_RESULT_BYTES + 1
        kind = type(value)
        if issubclass(kind, dict):
            waiting.extend(dict.keys(value))
            waiting.extend(dict.values(value))
        elif issubclass(kind, list | tuple | set | frozenset):
            waiting.extend(value)
        elif isinstance(inner := getattr(value, "__dict__", None), dict):
            waiting.extend(inner.values())
    return total


def copied_exception(error: BaseException | None) -> BaseException | None:
    """A copy of an exception without its traceback, which would keep every frame of the tool; None: no copy."""
    if error is None:
        return None
    try:
        made = copy.copy(error)
        same = type(made) is type(error) and made.args == error.args and size_of(made) <= MAX_ERROR_BYTES
    except Exception:  # noqa: BLE001 - exceptions whose constructor takes other arguments
        return None
    if not same:
        return None
    made.__cause__ = made.__context__ = None
    return made.with_traceback(None)
