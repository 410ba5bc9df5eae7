"""The interactive shell of `trustfold sql`: lines with completion, paged answers, queries that can be cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from ..schemas.errors import TrustfoldError
from ..security.private_files import make_directory, make_file
from ..security.redaction import redact_text
from .render import error_line, note
from .sql_answers import print_paged, shown_paged
from .sql_commands import COMMANDS, HELP, QUIT, answered, is_command
from .sql_completion import Words, words_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")


def shell(connection: DuckDBPyConnection, lines: Path) -> None:
    """Ask for statements and show their answers until the user ends it.

    Args:
        connection: to the catalogue.
        lines: file that keeps what was typed, for this user alone; lines with secrets are left out.
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
                continue  # the line is given up
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
    """Whether a text can be run: a command, nothing at all, or statements whose last one has its semicolon."""
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
    """What shows each answer, one after the other; Ctrl-C cancels the statement that is running."""
    from ..history.queries import parts

    if is_command(text):
        columns, rows, more = _cancellable(connection, beside, lambda: answered(connection, text))
        yield lambda: print_paged(columns, rows, more)
        return
    for statement in parts(connection, text) if text else ():
        yield _cancellable(connection, beside, lambda statement=statement: shown_paged(connection, statement))  # type: ignore[misc]


def _cancellable(connection: DuckDBPyConnection, beside: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """Do something with the connection in another thread, so that Ctrl-C is heard at once.

    Raises:
        KeyboardInterrupt: it was cancelled; the connection can be used again.
    """
    future = beside.submit(work)
    try:
        return future.result()
    except KeyboardInterrupt:
        while not future.done():
            connection.interrupt()  # again, where it came between two steps of the work
            wait([future], timeout=0.1)
        raise


def _keys() -> KeyBindings:
    """Enter ends a line and runs what is complete; with a completion chosen, it takes that."""
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
    """Words for where the cursor is."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """As the library asks for them."""
        typing = not complete_event.completion_requested
        text = document.text_before_cursor
        if typing and not (text[-1:].isalnum() or text[-1:] in {"_", "."}):
            return
        for word, replaced in self._words.after(text):
            yield Completion(word.text, start_position=-replaced, display_meta=word.meaning)


class _Lines(FileHistory):
    """What was typed, but for lines that hold a secret."""

    def store_string(self, string: str) -> None:
        """Keep one entry."""
        if redact_text(string) == string and "secret" not in string.lower():
            super().store_string(string)


def _kept(lines: Path) -> History:
    try:
        make_directory(lines.parent)
        make_file(lines)
    except OSError as error:
        note(f"{lines} cannot be written ({error.strerror}); lines are kept until the end only")
        return InMemoryHistory()
    return _Lines(lines)
