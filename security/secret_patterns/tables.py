"""Secrets under a name: in columns (CSV, Markdown, consoles of databases, rows that SQL inserts) and in lists."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .names import is_secret_name
from .shapes import shape
from .values import QUOTE, is_password, is_placeholder

Span = tuple[int, int]

_COLUMNS = (
    "password|passwd|passwort|kennwort|pwd|secret|token|api_key|apikey|api key|access_key|secret_key|private_key|pin"
)
_LONGEST_HEADER = 1_000
_LONGEST_NAME = 60
_AROUND = b" \t\"'`*\\{}[]()"
_QUOTES = b" \"'`*"
_SEPARATORS = (b"|", b"\\t", b"\t", b";", b",", b'\\",')
_RULE = re.compile(rb"[-+=|: \t]*")
_LINE_END = re.compile(rb"\n|\\{1,4}n")
_LINE_BEGIN = re.compile(rb"\n|\\{1,4}n|\":")
_END_OF_VALUE = re.compile(rb"\"[,}\]]")
_ROW = re.compile(rb"[\s,]{0,8}\(")
_FIELD = re.compile(
    rb"\s{0,8}(?:n?'([^'\\\n]{0,4000})'|\\{0,4}\"([^\"\\\n]{0,4000})\\{0,4}\"|[^,()'\"\n]{0,400})\s{0,8}([,)])"
)


def _name(cell: bytes) -> str:
    return cell.strip(_AROUND).replace(b" ", b"_").replace(b".", b"_").decode("utf-8", "replace")


def _cells(text: bytes, start: int, end: int, separator: bytes) -> Iterator[Span]:
    """Yield the place of each cell of a line, without what surrounds its value."""
    for cell in text[start:end].split(separator):
        value = cell.strip(_AROUND)
        begin = start + cell.find(value)
        yield begin, begin + len(value)
        start += len(cell) + len(separator)


def _of_table(match: re.Match[bytes], text: bytes) -> tuple[list[Span], int]:
    """Secrets in the rows below a header, and where the table ends."""
    before, after = text[max(0, match.start() - 30) : match.start()], text[match.end(1) : match.end(1) + 30]
    separators = (
        one
        for one in _SEPARATORS
        if before.rstrip(_QUOTES + b"\\").endswith(one) or after.lstrip(_QUOTES).startswith(one)
    )
    separator = next(separators, b"")
    line_end = _LINE_END.search(text, match.end(1), match.end(1) + _LONGEST_HEADER)
    if line_end is None:
        return [], _before_line_end(text, match.end(1))
    if not separator:
        return [], line_end.end()
    begin = max(0, match.start() - _LONGEST_HEADER)
    begin = max([begin, *(last.end() for last in _LINE_BEGIN.finditer(text, begin, match.start()))])
    header = text[begin : line_end.start()].split(separator)
    names = [_name(cell) if len(cell) <= _LONGEST_NAME else "" for cell in header]
    columns = [number for number, name in enumerate(names) if name and is_secret_name(name)]
    found: list[Span] = []
    begin = line_end.end()
    while columns and line_end is not None:
        begin = line_end.end()
        line_end = _LINE_END.search(text, begin)
        end = line_end.start() if line_end else len(text)
        cells = list(_cells(text, begin, end, separator))
        if len(cells) > len(header) and (closed := _END_OF_VALUE.search(text, begin, end)):
            cells = list(_cells(text, begin, closed.start(), separator))
        if len(cells) == len(header):
            found += [cells[number] for number in columns if is_password(text[slice(*cells[number])])]
        elif _RULE.fullmatch(text, begin, end) is None:
            break
    return found, begin


def _before_line_end(text: bytes, at: int) -> int:
    """Return where a header that is no longer than any may begin, in a line that goes on for longer than that."""
    ends = [end for line_end in (b"\n", b"\\n") if (end := text.find(line_end, at)) >= 0]
    return max(at, min(ends, default=len(text)) - _LONGEST_HEADER)


def _of_insert(match: re.Match[bytes], text: bytes) -> tuple[list[Span], int]:
    """Secrets in the rows of a statement, and where it ends."""
    names = [_name(cell) for cell in text[slice(*match.span(1))].split(b",")]
    columns = {number: name for number, name in enumerate(names) if is_secret_name(name)}
    found: list[Span] = []
    at = match.end()
    while columns and (row := _ROW.match(text, at)):
        at, number = row.end(), 0
        while field := _FIELD.match(text, at):
            group = 1 if field[1] is not None else 2
            value = field[group] or b""
            name = columns.get(number, "").lower()
            if name and (is_password(value) or ("pass" in name and len(value) > 3 and not is_placeholder(value))):
                found.append(field.span(group))
            at, number = field.end(), number + 1
            if field[3] == b")":
                break
        else:
            break
    return found, at


_LISTS = "passwords|passwds|passphrases|tokens|api_keys|apikeys|api-keys|access_keys|secret_keys|private_keys"
_YAML_ITEM = re.compile(
    rb"[ \t]{0,40}-[ \t]{1,4}(?:\\*[\"'])?([^\s\"'\\]{1,400})(?:\\*[\"'])?[ \t]{0,8}(?:\n|(?=[\"'\\])|\Z)"
)
_ITEM = re.compile(rb"[\s,]{0,40}(?:\\*[\"'])?([^\s\"'\\,\[\]]{1,400})(?:\\*[\"'])?")
_LONG, _SHORT = 16, 8  # Least length of a token of a list: those of a language are shorter, or not all alike random


def _of_list(match: re.Match[bytes], text: bytes) -> tuple[list[Span], int]:
    """Secrets in a list, and where it ends."""
    found: list[Span] = []
    every = True
    at, least = match.end(), _LONG if match.group().startswith(b"token") else 0
    matches = _ITEM.match if text[at - 1 : at] == b"[" else _YAML_ITEM.match
    while item := matches(text, at):
        at = item.end()
        if is_password(item[1]):
            found.append(item.span(1))
        every = every and len(item[1]) >= _SHORT and item[1] != item[1].lower() and is_password(item[1])
    return [place for place in found if every or place[1] - place[0] >= least], at


TABLES = (
    shape("list", "^" + _LISTS, rf"(?#folded)(?:{_LISTS}){QUOTE}\s{{0,4}}[:=]\s{{0,4}}?(?:\[|\n)", places=_of_list),
    shape("column", "^" + _COLUMNS, rf"(?#folded)({_COLUMNS})(?![a-z0-9_])", places=_of_table),
    shape("insert", "^insert into ", r"(?#folded)insert into [^\s()]{1,80}\s{0,8}\(([^()]{1,1000})\)\s{0,8}values", places=_of_insert),
)  # fmt: skip
