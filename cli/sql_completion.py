"""Words that complete a line of `trustfold sql`: views, macros, their columns, functions, and words of SQL."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_WORD = re.compile(r"[\w.]*$")
_SOURCE = re.compile(r"\b(?:from|join|describe|summarize)\s+(?:[\w.]+\s*,\s*)*$", re.IGNORECASE)
_NAMED = re.compile(r"\b(?:from|join)\s+(\w+)|,\s*(\w+)", re.IGNORECASE)

_SQL = (
    "ALL AND ANTI AS ASC ASOF BETWEEN BY CASE COPY COUNT CREATE CROSS DESC DESCRIBE DISTINCT ELSE END EXCEPT "
    "EXCLUDE EXISTS FILTER FROM GROUP HAVING ILIKE IN INNER INTERSECT INTERVAL IS JOIN LEFT LIKE LIMIT MACRO NOT "
    "NULL OFFSET ON OR ORDER OUTER OVER PARTITION PIVOT QUALIFY REPLACE SELECT SEMI SUMMARIZE TEMP THEN TIMESTAMP "
    "TO UNION UNNEST USING VALUES VIEW WHEN WHERE WINDOW WITH "
).split()


class Word(NamedTuple):
    """A word that could stand here, and what it means."""

    text: str
    meaning: str


@dataclass(frozen=True)
class Words:
    """Everything that a line can be completed with.

    Attributes:
        sources: views and macros; what can stand after FROM.
        columns: by view, its columns.
        functions: of DuckDB, and macros that give one value.
        commands: what begins with a dot, and after it the words that may follow.
    """

    sources: tuple[Word, ...]
    columns: Mapping[str, tuple[Word, ...]]
    functions: tuple[Word, ...]
    commands: Mapping[str, tuple[Word, ...]]

    def after(self, text: str) -> Iterator[tuple[Word, int]]:
        """Words that complete a text which ends where the cursor is, each with how many characters it replaces."""
        if text.startswith("."):
            yield from self._of_command(text)
            return
        found = _WORD.search(text)
        typed = found[0] if found else ""
        prefix = typed.rpartition(".")[2]
        before = text[: len(text) - len(typed)]
        for word in self._fitting(before, typed, text):
            if word.text.lower().startswith(prefix.lower()) and word.text != prefix:
                yield word, len(prefix)

    def _fitting(self, before: str, typed: str, text: str) -> Iterator[Word]:
        if _SOURCE.search(before):
            yield from self.sources
            return
        if "." in typed and (columns := self.columns.get(typed.rpartition(".")[0])):
            yield from columns
            return
        views = [view for pair in _NAMED.findall(text) for view in pair if view in self.columns]
        seen: set[str] = set()
        for view in views or (self.columns if typed else ()):
            for word in self.columns[view]:
                if word.text not in seen:
                    seen.add(word.text)
                    yield word
        if typed:
            yield from (Word(word, "") for word in _SQL)
            yield from self.functions
            yield from self.sources

    def _of_command(self, text: str) -> Iterator[tuple[Word, int]]:
        command, blank, rest = text.partition(" ")
        words = self.commands.get(command, ()) if blank else [Word(name, "") for name in self.commands]
        prefix = rest if blank else command
        for word in words:
            if word.text.startswith(prefix) and word.text != prefix:
                yield word, len(prefix)


def words_of(connection: DuckDBPyConnection, commands: Mapping[str, str]) -> Words:
    """The words of a catalogue, and the shell's commands, each with `views`, `questions` or nothing to follow."""
    from ..history.catalogue import relations
    from ..history.reports import QUESTIONS

    kinds: dict[str, list[Word]] = defaultdict(list)
    for name, kind, comment in relations(connection):
        kinds[kind].append(Word(name.partition("(")[0] + ("(" if "(" in name else ""), comment))
    columns: dict[str, list[Word]] = defaultdict(list)
    for view, name, meaning in connection.execute(
        "SELECT table_name, column_name, coalesce(comment, data_type) FROM duckdb_columns() "
        "WHERE NOT internal ORDER BY table_name, column_index"
    ).fetchall():
        columns[view].append(Word(name, meaning))
    functions = connection.execute(
        "SELECT DISTINCT ON (function_name) function_name, coalesce(description, '') FROM duckdb_functions() "
        "WHERE internal AND function_type IN ('scalar', 'aggregate') AND regexp_full_match(function_name, '[a-z]\\w+') "
        "ORDER BY function_name"
    ).fetchall()
    following = {
        "views": tuple(kinds["view"]),
        "questions": tuple(Word(question.name, question.title) for question in QUESTIONS),
    }
    return Words(
        sources=tuple(kinds["view"] + kinds["macro"]),
        columns={view: tuple(found) for view, found in columns.items()},
        functions=tuple(kinds["function"] + [Word(f"{name}(", meaning) for name, meaning in functions]),
        commands={name: following.get(what, ()) for name, what in commands.items()},
    )
