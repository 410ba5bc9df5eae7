"""Finds the line of a value in a TOML or JSON text; the standard library's parsers do not report it.

Only for valid texts. TOML is split into statements with the help of its own parser, so that headers, dotted keys,
inline tables and multi-line values are read exactly as the parser reads them.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

Path = tuple[str | int, ...]
"""Keys and positions from the top of a document to a value."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\],:]|[^\s{}\[\],:"]+')
_HEADER = re.compile(r"^\s*\[")


def line_of(text: str, path: Sequence[str | int], *, as_json: bool) -> int | None:
    """Return the line (from 1) of the value at a path, or of the nearest enclosing table; None without one."""
    places: dict[Path, int] = {}
    for place, line in _json_places(text) if as_json else _toml_places(text):
        places.setdefault(place, line)
    wanted = tuple(path)
    while wanted:
        if wanted in places:
            return places[wanted]
        wanted = wanted[:-1]
    return None


def _json_places(text: str) -> Iterator[tuple[Path, int]]:
    """Yield path and line of every value of a JSON document."""
    stack: list[str | int | None] = []  # key or position that the open tables and lists are at; None: a key is awaited
    line, seen = 1, 0
    for token in _TOKEN.finditer(text):
        word = token[0]
        line += text.count("\n", seen, token.start())
        seen = token.start()
        if word in "{[":
            yield from _announced(stack, line)
            stack.append(None if word == "{" else 0)
        elif word in "}]":
            stack.pop()
        elif word == ",":
            stack[-1] = stack[-1] + 1 if isinstance(stack[-1], int) else None
        elif word != ":":
            if stack and stack[-1] is None:
                stack[-1] = json.loads(word)
                yield _path(stack), line
            else:
                yield from _announced(stack, line)


def _announced(stack: Sequence[str | int | None], line: int) -> Iterator[tuple[Path, int]]:
    """Yield the path of a list element; a keyed value has the place of its key."""
    if stack and isinstance(stack[-1], int):
        yield _path(stack), line


def _path(stack: Sequence[str | int | None]) -> Path:
    return tuple(step for step in stack if step is not None)


def _toml_places(text: str) -> Iterator[tuple[Path, int]]:
    """Yield path and line of every value of a TOML document."""
    table: Path = ()
    counts: dict[Path, int] = {}
    for number, statement in _statements(text):
        document = tomllib.loads(statement)
        if not _HEADER.match(statement):
            yield from _within(document, table, number)
            continue
        table = ()
        steps = list(_only_path(document))
        for depth, step in enumerate(steps, 1):
            table = (*table, step)
            if depth == len(steps) and statement.lstrip().startswith("[["):
                counts[table] = counts.get(table, -1) + 1
            yield table, number
            if table in counts:
                table = (*table, counts[table])
                yield table, number


def _only_path(document: Any) -> Iterator[str]:
    """Yield the keys of a header, outermost first."""
    while True:
        document = document[0] if isinstance(document, list) else document
        if not document:
            return
        ((name, document),) = document.items()
        yield name


def _within(value: Any, path: Path, line: int) -> Iterator[tuple[Path, int]]:
    steps: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step), line
        yield from _within(inner, (*path, step), line)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each TOML statement with its first line: the fewest lines that parse by themselves."""
    begun, lines = 1, ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        lines += line
        try:
            document = tomllib.loads(lines)
        except tomllib.TOMLDecodeError:
            continue
        if document:
            yield begun, lines
        begun, lines = number + 1, ""
