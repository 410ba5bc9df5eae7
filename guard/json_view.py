"""JSON form of any Python value, for what leaves the process; never raises and never changes the value (docs/guard.md).

Values that JSON cannot hold are described by kind and size. Text is made valid Unicode, member names become text.
Values are read with the methods of the built-in types, so that no method of a subclass runs.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import enum
import math
import pathlib
import uuid
from hashlib import blake2b
from typing import Any

import orjson

MAX_DEPTH = 32  # Nesting depth below which values are described by kind
MAX_NODES = 20_000  # Number of values in a view; further ones are omitted. Bounds the time for wide or cyclic values.

BIG_TEXT = 65_536
BIG_NODES = 500  # Number of parts from which a value is digested in a thread

_DUMP = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
_TEXTUAL = (
    dt.date,
    dt.time,
    dt.timedelta,
    uuid.UUID,
    decimal.Decimal,
    pathlib.PurePath,
)
_BYTES = (bytes, bytearray, memoryview)
_LARGEST_HEX_BITS = 4096


def json_form(value: Any) -> tuple[Any, bytes]:
    """Return a value as plain JSON data (the value itself if it is plain), and its JSON with sorted names."""
    try:
        return value, orjson.dumps(value, option=_DUMP)
    except Exception:  # noqa: BLE001 - orjson's own error, or one of an object that it looked at
        plain = json_view(value)
    return plain, orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)


def sent_form(args: dict[str, Any], form: tuple[Any, bytes] | None = None) -> dict[str, Any]:
    """Return arguments as a reader of the event gets them: objects and bytes are described by kind and size.

    `form` is their `json_form`, if it is known.
    """
    plain, raw = form or json_form(args)
    is_plain = plain is args  # the type checker would narrow the wrong variable
    if not is_plain:
        sent: dict[str, Any] = json_view(args, open_objects=False)
        return sent
    if _PLAIN.issuperset(map(type, args.values())):
        return args
    read: dict[str, Any] = orjson.loads(raw)
    return read


def json_view(value: Any, *, open_objects: bool = True) -> Any:
    """Return a value as plain JSON data.

    Args:
        value: anything.
        open_objects: describe objects by their public attributes and bytes by a hash, so that different ones differ;
            False: by kind and size alone, for values that are sent.
    """
    return _ValueView(open_objects=open_objects).of(value, 0)


def clean_text(text: str) -> str:
    """Return valid UTF-8 text: surrogate pairs are joined, lone surrogates become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def text_of(value: object) -> str:
    """Return the text of any object as valid Unicode; its type's name if it has none."""
    if type(value) is str:
        return clean_text(value)
    try:
        return clean_text(str.__str__(value) if isinstance(value, str) else str(value))
    except Exception:  # noqa: BLE001 - an object's own `__str__`
        return f"<{kind_of(value)}>"


def kind_of(value: object) -> str:
    """Return the name of an object's type."""
    try:
        return clean_text(str(type(value).__name__))[:120]
    except Exception:  # noqa: BLE001 - a metaclass may refuse even that
        return "object"


def is_big(value: Any) -> bool:
    """Whether encoding a value takes long enough to block an event loop."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) > BIG_TEXT
    text, nodes, waiting = 0, 0, [value]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is str or kind is bytes:
            text += len(value)
        elif kind is dict:
            nodes += len(value)
            if nodes <= BIG_NODES:
                waiting.extend(value.values())
        elif kind is list or kind is tuple:
            nodes += len(value)
            if nodes <= BIG_NODES:
                waiting.extend(value)
        elif kind not in _SCALARS:
            inner = _attributes(value)
            if inner is not None:
                waiting.append(inner)
        if nodes > BIG_NODES or text > BIG_TEXT:
            return True
    return False


_PLAIN = frozenset({str, int, float, bool, type(None)})
_SCALARS = frozenset({int, float, bool, type(None)})


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return the stored attributes of an instance."""
    try:
        inner = object.__getattribute__(value, "__dict__")
    except Exception:  # noqa: BLE001 - it has none, or hides them
        return None
    return inner if type(inner) is dict else None


class _ValueView:
    """One traversal of a value."""

    def __init__(self, *, open_objects: bool) -> None:
        self._open = open_objects
        self._left = MAX_NODES
        self._path: set[int] = set()

    def of(self, value: Any, depth: int) -> Any:
        """Return the value, or its description."""
        self._left -= 1
        kind = type(value)
        if kind is str:
            return clean_text(value)
        if value is None or kind is bool:
            return value
        try:
            return self._of(value, kind, depth)
        except Exception:  # noqa: BLE001 - whatever an object does when it is looked at
            return f"<{kind_of(value)}>"

    def _of(self, value: Any, kind: type, depth: int) -> Any:
        if issubclass(kind, str):
            return clean_text(str.__str__(value))
        if issubclass(kind, int):
            return _whole(int.__index__(value))
        if issubclass(kind, float):
            number = float.__float__(value)
            return number if math.isfinite(number) else repr(number)
        if issubclass(kind, _BYTES):
            return self._bytes(value)
        if issubclass(kind, enum.Enum):
            return self.of(object.__getattribute__(value, "_value_"), depth + 1)
        if issubclass(kind, _TEXTUAL):
            return clean_text(str(value))
        if depth >= MAX_DEPTH or self._left <= 0 or id(value) in self._path:
            return f"<{kind_of(value)}>"
        self._path.add(id(value))
        try:
            return self._container(value, kind, depth + 1)
        finally:
            self._path.discard(id(value))

    def _container(self, value: Any, kind: type, depth: int) -> Any:
        if issubclass(kind, dict):
            return self._members(dict.items(value), depth)
        if issubclass(kind, list):
            return self._items(list.__iter__(value), depth)
        if issubclass(kind, tuple):
            return self._items(tuple.__iter__(value), depth)
        if issubclass(kind, set | frozenset):
            items = self._items(set.__iter__(value) if issubclass(kind, set) else frozenset.__iter__(value), depth)
            return sorted(items, key=lambda item: orjson.dumps(item, option=orjson.OPT_SORT_KEYS))
        name = f"<{kind_of(value)}>"
        if not self._open or isinstance(value, type):
            return name
        inner = _attributes(value)
        if inner is None:
            return name
        public = [(key, held) for key, held in inner.items() if type(key) is str and not key.startswith("_")]
        return {name: self._members(public, depth)} if public else name

    def _members(self, members: Any, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in members:
            if self._left <= 0:
                break
            made[self._name(name, depth)] = self.of(value, depth)
        return made

    def _name(self, name: Any, depth: int) -> str:
        if type(name) is str:
            return clean_text(name)
        seen = self.of(name, depth)
        return seen if isinstance(seen, str) else orjson.dumps(seen, option=orjson.OPT_SORT_KEYS).decode()

    def _items(self, items: Any, depth: int) -> list[Any]:
        made = []
        for item in items:
            if self._left <= 0:
                break
            made.append(self.of(item, depth))
        return made

    def _bytes(self, value: Any) -> str:
        size = value.nbytes if isinstance(value, memoryview) else len(value)
        digest = ""
        if self._open:
            with contextlib.suppress(Exception):  # a view of memory that is not in one piece
                digest = f" {blake2b(value, digest_size=8).hexdigest()}"
        return f"<bytes {size}{digest}>"


def _whole(number: int) -> int | str:
    if -(1 << 63) <= number < 1 << 64:
        return number
    bits = number.bit_length()
    return f"{number:#x}" if bits <= _LARGEST_HEX_BITS else f"<int {bits} bits>"
