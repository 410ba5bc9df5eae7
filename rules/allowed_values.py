"""Describes allowed values of rules in words, for error messages about rules files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct, inspect

from .rules import RuleSet

Step = str | int

OFF = "off"
"""Value of a disabled threshold in TOML, which has no null; `false` means the same."""

_SHOWN = 60
_WORD_CHOICE = re.compile(r"\^\((\w+(?:\|\w+)+)\)\$")
_COLLECTIONS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType)


def allowed_at(path: Sequence[Step], kind: type[Struct] = RuleSet, *, key: bool = False) -> str | None:
    """Describe the allowed values at a path, e.g. `a whole number from 1 to 100`; None if there is no such path.

    Args:
        path: keys and positions.
        kind: type of the document: rules, or settings.
        key: describe the allowed keys of the table there instead of the table.
    """
    node: Any = _type_of(kind)
    for step in path:
        node = _below(node, step)
        if node is None:
            return None
    if key:
        return next((_words(one.key_type) for one in _members(node) if isinstance(one, inspect.DictType)), None)
    words = [_words(one) for one in _members(node)]
    if kind is RuleSet and any(isinstance(one, inspect.NoneType) for one in _alternatives(node)):
        words.append(f'"{OFF}" (null in JSON)')
    return ", or ".join(words)


def without_off(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with disabled thresholds as null; other texts and booleans are unchanged."""
    return {name: _without_off(value, _below(_type_of(RuleSet), name)) for name, value in document.items()}


def given_at(document: Any, path: Sequence[Step]) -> str:
    """Return the value at a path of a document as text for its author."""
    for step in path:
        known = isinstance(document, Mapping) or (isinstance(document, Sequence) and isinstance(step, int))
        try:
            document = document[step] if known else None
        except (KeyError, IndexError):
            document = None
    if isinstance(document, Mapping):
        return "a table"
    if isinstance(document, (list, tuple)):
        return "a list"
    shown = json.dumps(document, ensure_ascii=False, default=str)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return f"the text {shown}" if isinstance(document, str) else shown


@cache
def _type_of(kind: type[Struct]) -> Any:
    return inspect.type_info(kind)


def _alternatives(node: Any) -> Sequence[Any]:
    return node.types if isinstance(node, inspect.UnionType) else (node,)


def _members(node: Any) -> list[Any]:
    """Return the alternatives of a union other than null."""
    return [one for one in _alternatives(node) if not isinstance(one, inspect.NoneType)]


def _below(node: Any, step: Step) -> Any:
    for one in _members(node):
        if isinstance(one, inspect.StructType):
            return next((field.type for field in one.fields if field.encode_name == step), None)
        if isinstance(one, inspect.DictType):
            return one.value_type
        if isinstance(one, _COLLECTIONS):
            return one.item_type
    return None


def _without_off(value: Any, node: Any) -> Any:
    if node is None:
        return value
    if isinstance(value, Mapping):
        return {name: _without_off(inner, _below(node, name)) for name, inner in value.items()}
    switched_off = value is False or (isinstance(value, str) and value == OFF)
    return None if switched_off and any(isinstance(one, inspect.NoneType) for one in _alternatives(node)) else value


def _words(node: Any) -> str:
    match node:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number{_bounds(node)}"
        case inspect.FloatType():
            return f"a number{_bounds(node)}"
        case inspect.EnumType():
            return f"one of {', '.join(node.cls)}"
        case inspect.StrType():
            choice = _WORD_CHOICE.fullmatch(node.pattern or "")
            if choice:
                return f"one of {', '.join(choice.group(1).split('|'))}"
            return f"a text of 1 to {node.max_length} characters" if node.min_length else "a text"
        case inspect.StructType() | inspect.DictType():
            return "a table"
    return f"a list, each {_words(node.item_type)}" if isinstance(node, _COLLECTIONS) else "something else"


def _bounds(node: inspect.IntType | inspect.FloatType) -> str:
    least = f" from {node.ge:g}" if node.ge is not None else f" above {node.gt:g}" if node.gt is not None else ""
    most = f"{'' if node.ge is not None else ' up'} to {node.le:.12g}" if node.le is not None else ""
    return least + most
