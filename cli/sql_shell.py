"""The interactive shell of `trustfold sql`: line editing with completion, paged answers, cancellable queries."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from ..errors import TrustfoldError
from ..security.private_files import make_directory, make_file
from ..security.redaction import redact_text
from .render import error_line, note
from .sql_answers import COMMANDS, HELP, QUIT, answered, is_command, print_paged, shown_paged

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")


def shell(connection: DuckDBPyConnection, lines: Path) -> None:
    """Read statements and show their answers until the user exits.

    Args:
        connection: connection to the catalogue.
        lines: file for the history of typed lines, readable by this user alone; lines with secrets are omitted.
    """
    session: PromptSession[str] = PromptSession(
        history=_kept(lines),
        completer=_Completing(words_of(connection, COMMANDS)),
        complete_while_typing=True,
        lexer=PygmentsLexer(SqlLexer),
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation="   ...> ",
    )
    note(HELP)
    with ThreadPoolExecutor(max_workers=1) as beside:
        while True:
            try:
                text = session.prompt("history> ").strip()
            except KeyboardInterrupt:
                continue  # Ctrl-C discards the line
            except EOFError:
                return
            if text == QUIT:
                return
            try:
                for show in _answers(connection, text, beside):
                    show()
            except TrustfoldError as error:
                error_line(str(error))
            except KeyboardInterrupt:
                error_line("cancelled")


def is_complete(text: str) -> bool:
    """True if a text can be run: empty, a dot command, or statements that end with a semicolon."""
    import duckdb

    stripped = text.strip()
    if not stripped or is_command(stripped):
        return True
    tokens = duckdb.tokenize(stripped)
    return (
        bool(tokens)
        and stripped.endswith(";")
        and tokens[-1] == (len(stripped.encode()) - 1, duckdb.token_type.operator)
    )


def _answers(connection: DuckDBPyConnection, text: str, beside: ThreadPoolExecutor) -> Iterator[Callable[[], None]]:
    """Yield a function that shows each answer, in order; Ctrl-C cancels the running statement."""
    from ..history.queries import parts

    if is_command(text):
        columns, rows, more = _cancellable(connection, beside, lambda: answered(connection, text))
        yield lambda: print_paged(columns, rows, more)
        return
    for statement in parts(connection, text) if text else ():
        yield _cancellable(connection, beside, lambda statement=statement: shown_paged(connection, statement))  # type: ignore[misc]


def _cancellable(connection: DuckDBPyConnection, beside: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """Run a function of the connection in another thread, so that Ctrl-C takes effect at once.

    Raises:
        KeyboardInterrupt: it was cancelled; the connection can be used again.
    """
    future = beside.submit(work)
    try:
        return future.result()
    except KeyboardInterrupt:
        while not future.done():
            connection.interrupt()  # again, if the first interrupt came between two queries
            wait([future], timeout=0.1)
        raise


def _keys() -> KeyBindings:
    """Key bindings: Enter runs a complete text, else starts a new line; it accepts a selected completion."""
    from prompt_toolkit.application import get_app

    keys = KeyBindings()

    @Condition
    def choosing() -> bool:
        state = get_app().current_buffer.complete_state
        return state is not None and state.current_completion is not None

    @keys.add("enter", filter=~choosing)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("enter", filter=choosing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    return keys


class _Completing(Completer):
    """Completer for prompt_toolkit: words that fit at the cursor."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions at the cursor."""
        typing = not complete_event.completion_requested
        text = document.text_before_cursor
        if typing and not (text[-1:].isalnum() or text[-1:] in {"_", "."}):
            return
        for word, replaced in self._words.after(text):
            yield Completion(word.text, start_position=-replaced, display_meta=word.meaning)


class _Lines(FileHistory):
    """File history of typed lines, without lines that contain a secret."""

    def store_string(self, string: str) -> None:
        """Store one entry, unless it contains a secret."""
        if redact_text(string) == string and "secret" not in string.lower():
            super().store_string(string)


def _kept(lines: Path) -> History:
    try:
        make_directory(lines.parent)
        make_file(lines)
    except OSError as error:
        note(f"{lines} cannot be written ({error.strerror}); typed lines are kept only until exit")
        return InMemoryHistory()
    return _Lines(lines)


_WORD = re.compile(r"(?<![\w.])[\w.]*$")
_SOURCE = re.compile(r"\b(?:from|join|describe|summarize)\s+(?:[\w.]+\s*,\s*)*$", re.IGNORECASE)
_NAMED = re.compile(r"\b(?:from|join)\s+(\w+)|,\s*(\w+)", re.IGNORECASE)

_SQL = (
    "ALL AND ANTI AS ASC ASOF BETWEEN BY CASE COPY COUNT CREATE CROSS DESC DESCRIBE DISTINCT ELSE END EXCEPT "
    "EXCLUDE EXISTS FILTER FROM GROUP HAVING ILIKE IN INNER INTERSECT INTERVAL IS JOIN LEFT LIKE LIMIT MACRO NOT "
    "NULL OFFSET ON OR ORDER OUTER OVER PARTITION PIVOT QUALIFY REPLACE SELECT SEMI SUMMARIZE TEMP THEN TIMESTAMP "
    "TO UNION UNNEST USING VALUES VIEW WHEN WHERE WINDOW WITH "
).split()


class Word(NamedTuple):
    """Completion word and its description."""

    text: str
    meaning: str


@dataclass(frozen=True)
class Words:
    """All completion words of a catalogue.

    Attributes:
        sources: views and table macros, valid after FROM.
        columns: columns by view.
        functions: DuckDB functions and scalar macros.
        commands: dot commands, and the words that may follow each.
    """

    sources: tuple[Word, ...]
    columns: Mapping[str, tuple[Word, ...]]
    functions: tuple[Word, ...]
    commands: Mapping[str, tuple[Word, ...]]

    def after(self, text: str) -> Iterator[tuple[Word, int]]:
        """Words that complete the text before the cursor, each with the number of characters it replaces."""
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
    """Completion words of a catalogue and of the dot commands, each followed by `views`, `questions` or nothing."""
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
