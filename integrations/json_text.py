"""Edits JSON text with comments and trailing commas in place; all other text is preserved.

People edit agents' settings, too; parsing and printing them would lose their comments and layout.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"[-+.0-9A-Za-z]+")
_MAX_DEPTH = 100


@dataclass
class JsonNode:
    """Value with its position in the text.

    Attributes:
        start: position of its first character.
        end: position after its last character.
        value: parsed value.
        members: for an object: position of the name and the value, by name.
        elements: elements of an array.
    """

    start: int
    end: int = 0
    value: Any = None
    members: dict[str, tuple[int, JsonNode]] = field(default_factory=dict)
    elements: list[JsonNode] = field(default_factory=list)


def parse(text: str) -> JsonNode:
    """Parse a text.

    Raises:
        ValueError: the text is not JSON, even with comments; the message says where.
    """
    at = _skip(text, 1 if text.startswith("\ufeff") else 0)
    node = _value(text, at, 0)
    rest = _skip(text, node.end)
    if rest != len(text):
        raise _fault(text, rest, "the end of the file")
    return node


def put(text: str, path: list[str], element: Any) -> str:
    """Return the text with an element appended to the array at a path of names; missing containers are created.

    Raises:
        ValueError: the text is not JSON, or the path leads through another kind of value.
    """
    node = parse(text)
    for depth, name in enumerate(path):
        if not isinstance(node.value, dict):
            raise ValueError(f"{'.'.join(path[:depth]) or 'the file'} is no object")
        found = node.members.get(name)
        if found is None:
            made: Any = [element]
            for inner in reversed(path[depth + 1 :]):
                made = {inner: made}
            return _insert(text, node, f"{json.dumps(name, ensure_ascii=False)}: ", made)
        node = found[1]
    if not isinstance(node.value, list):
        raise ValueError(f"{'.'.join(path)} is no array")
    return _insert(text, node, "", element)


def set_member(text: str, name: str, value: Any) -> str:
    """Return the text with a member added to its outermost object, unless the name exists.

    Raises:
        ValueError: the text is not a JSON object.
    """
    node = parse(text)
    if not isinstance(node.value, dict):
        raise ValueError("the file is no object")
    return text if name in node.members else _insert(text, node, f"{json.dumps(name)}: ", value)


def drop(text: str, path: list[str | int]) -> str:
    """Return the text without the member or element at a path and its comma.

    Raises:
        ValueError: the text is not JSON.
        LookupError: the path does not exist.
    """
    parent = parse(text)
    for step in path[:-1]:
        parent = parent.members[step][1] if isinstance(step, str) else parent.elements[step]
    children = _children(parent)
    last = path[-1]
    start, node = parent.members[last] if isinstance(last, str) else children[last]
    place = children.index((start, node))
    after = _skip(text, node.end)
    end = after + 1 if text[after] == "," else node.end
    if place + 1 < len(children):
        return text[:start] + text[end:].lstrip(" \t\r\n")
    if place:
        comma = _skip(text, children[place - 1][1].end)
        between = text[comma + 1 : start].rstrip()
        joint = "\n" if "//" in between and text[end : end + 1] not in {"\n", "\r"} else ""
        return text[:comma] + between + joint + text[end:]
    inside = text[parent.start + 1 : start] + text[end : parent.end - 1]
    return text[: parent.start + 1] + (inside if inside.strip() else "") + text[parent.end - 1 :]


def _children(parent: JsonNode) -> list[tuple[int, JsonNode]]:
    """Return the start of each member or element, and its value."""
    return list(parent.members.values()) or [(one.start, one) for one in parent.elements]


def _insert(text: str, parent: JsonNode, name: str, value: Any) -> str:
    """Return the text with a last member or element, on its own line and indented as its neighbours."""
    children = _children(parent)
    newline = "\r\n" if "\r\n" in text else "\n"
    own, unit = _indent(text, parent.start), _unit(text)
    on_lines = bool(children) and "\n" in text[parent.start : children[-1][0]]
    inner = _indent(text, children[-1][0]) if on_lines else own + unit
    lines = f"{name}{json.dumps(value, indent=unit, ensure_ascii=False)}".replace("\n", f"{newline}{inner}")
    cut = children[-1][1].end if children else parent.start + 1
    comma = "," if children and text[_skip(text, cut)] != "," else ""
    rest = text[cut : parent.end - 1].rstrip()
    return f"{text[:cut]}{comma}{rest}{newline}{inner}{lines}{newline}{own}{text[parent.end - 1 :]}"


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> JsonNode:
    if depth > _MAX_DEPTH:
        raise _fault(text, at, "fewer levels")
    mark = text[at : at + 1]
    if mark == "{":
        return _object(text, at, depth)
    if mark == "[":
        return _array(text, at, depth)
    found = _STRING.match(text, at) if mark == '"' else _WORD.match(text, at)
    if found is None:
        raise _fault(text, at, "a value")
    try:
        return JsonNode(at, found.end(), json.loads(found[0]))
    except ValueError as error:
        raise _fault(text, at, "a value") from error


def _object(text: str, at: int, depth: int) -> JsonNode:
    node = JsonNode(at, value={})
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        name = _STRING.match(text, at)
        colon = _skip(text, name.end()) if name else at
        if name is None or text[colon : colon + 1] != ":":
            raise _fault(text, at, 'a name such as "hooks", and a colon')
        inner = _value(text, _skip(text, colon + 1), depth + 1)
        key = json.loads(name[0])
        if key in node.members:
            raise _fault(text, at, f"another name than {key!r}, which stands there twice,")
        node.members[key] = (at, inner)
        node.value[key] = inner.value
        at = _next(text, inner.end, "}")
    node.end = at + 1
    return node


def _array(text: str, at: int, depth: int) -> JsonNode:
    node = JsonNode(at, value=[])
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        inner = _value(text, at, depth + 1)
        node.elements.append(inner)
        node.value.append(inner.value)
        at = _next(text, inner.end, "]")
    node.end = at + 1
    return node


def _next(text: str, at: int, closing: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1)
    if text[at : at + 1] != closing:
        raise _fault(text, at, f"a comma or {closing}")
    return at


def _fault(text: str, at: int, wanted: str) -> ValueError:
    line = text.count("\n", 0, at) + 1
    return ValueError(f"line {line}: {wanted} is expected")
