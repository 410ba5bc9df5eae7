"""`trustfold sql`: forms of answers, and the shell: completion, statements of several lines, Ctrl-C, lines kept."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import orjson
import pytest
from command_line import COMMAND, environment, trustfold
from recorded import told
from story import Story
from trustfold.cli.sql_answers import COMMANDS
from trustfold.cli.sql_shell import Words, _Lines, is_complete, words_of
from trustfold.history.catalogue import connect

QUERY = (
    "SELECT tool_name, time, expected, NULL AS nothing, [1, 2] AS list, 'a,\"b' AS text "
    "FROM failures ORDER BY time LIMIT 2"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a history in `h`."""
    folder = tmp_path_factory.mktemp("sql")
    told(folder / "h", Story().fails("deploy", times=3).works("search", times=300))
    return folder


def ask(place: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """What `trustfold sql` answers about it."""
    return trustfold("sql", *arguments, "--history", "h", cwd=place)


def test_csv_has_every_row_in_the_forms_of_json(place: Path) -> None:
    """Times as in JSON, lists as JSON, nothing as nothing; texts are quoted where they must be."""
    rows = [orjson.loads(line) for line in ask(place, QUERY, "--json").stdout.splitlines()]
    found = list(csv.DictReader(io.StringIO(ask(place, QUERY, "--csv").stdout.decode())))
    assert len(rows) == len(found) == 2
    for row, fields in zip(rows, found, strict=True):
        assert fields == {
            "tool_name": "deploy",
            "time": row["time"],
            "expected": "" if row["expected"] is None else str(row["expected"]).lower(),
            "nothing": "",
            "list": "[1,2]",
            "text": 'a,"b',
        }
    assert ask(place, "FROM failures LIMIT 0", "--csv").stdout.startswith(b"time,session_id,")


@pytest.mark.slow
def test_an_answer_is_written_into_a_file(place: Path) -> None:
    """By its ending: all rows, with their types in Parquet; for its owner alone, and whole or as it was."""
    for name in ("calls.parquet", "calls.csv", "calls.json"):
        done = ask(place, "SET threads = 1; SELECT time, tool_name FROM tool_calls -- all", "--output", name)
        assert (done.returncode, done.stdout) == (0, b""), done.stderr
        assert (place / name).stat().st_mode & 0o777 == 0o600
        with duckdb.connect() as connection:
            assert connection.execute(f"SELECT count(*) FROM '{place / name}'").fetchall() == [(303,)]
    before = (place / "calls.csv").read_bytes()
    assert ask(place, "FROM nowhere", "--output", "calls.csv").returncode == 1
    assert (place / "calls.csv").read_bytes() == before
    assert sorted(path.name for path in place.iterdir()) == ["calls.csv", "calls.json", "calls.parquet", "h"]
    assert ask(place, "FROM events", "--output", "calls.txt").returncode == 2


def test_rows_beyond_a_table_are_counted(place: Path) -> None:
    """And a statement without an answer shows none."""
    done = ask(place, "SET threads = 1; FROM tool_calls SELECT id")
    assert b"... and 103 more rows" in done.stderr
    assert b"Success" not in done.stdout


@pytest.mark.slow
def test_commands_say_what_there_is(place: Path) -> None:
    """Views, columns, questions with their answers and queries; unknown ones are refused."""
    columns = [orjson.loads(line) for line in ask(place, ".columns asks", "--json").stdout.splitlines()]
    assert {"column": "for_nothing", "type": "BOOLEAN"}.items() <= columns[-2].items()
    assert b"look-first" in ask(place, ".ask").stdout
    told_tools = ask(place, ".ask tools")
    assert b"search" in told_tools.stdout
    assert b"FROM tool_health(min_calls := 1) QUALIFY calls >= 20 LIMIT 20;" in told_tools.stderr
    for wrong in (".columns nothing", ".ask weather", ".schema"):
        assert ask(place, wrong).returncode == 2


def test_columns_without_room_are_named_below_the_table(place: Path) -> None:
    """What is shown stays whole."""
    narrow = trustfold("sql", ".ask tools", "--history", "h", cwd=place, env={"COLUMNS": "60"}).stdout.decode()
    assert "search" in narrow
    assert "no room for: " in narrow
    assert "last call" in narrow.partition("no room for: ")[2]
    assert max(map(len, narrow.splitlines())) <= 60


@pytest.fixture(scope="module")
def words(place: Path) -> Iterator[Words]:
    """Completions over the history."""
    with connect(place / "h") as connection:
        yield words_of(connection, COMMANDS)


@pytest.mark.parametrize(
    ("typed", "there", "not_there"),
    [
        ("FROM tool_", {"tool_calls", "tool_health("}, {"tool_name"}),
        ("SELECT * FROM events e JOIN needs", {"needs_attention"}, set()),
        ("FROM asks SELECT for_", {"for_nothing"}, set()),
        ("FROM asks SELECT tool_", {"tool_name"}, {"tool_sequence"}),
        ("SELECT med", {"median(", "median_wait"}, set()),
        ("FROM loops WHERE loops.wasted", {"wasted_calls", "wasted_ms", "wasted_usd"}, {"wasted_seconds"}),
        ("FROM events gro", {"GROUP"}, set()),
        (".col", {".columns"}, {"column_name"}),
        (".columns retry", {"retry_success"}, set()),
        (".ask wor", {"worse"}, set()),
        ("SELECT 1 ", set(), {"SELECT", "events"}),
    ],
)
def test_what_completes_a_line(words: Words, typed: str, there: set[str], not_there: set[str]) -> None:
    """Views after FROM, else the columns of the views that are named, functions and words of SQL."""
    found = {word.text for word, _ in words.after(typed)}
    assert there <= found
    assert not not_there & found
    assert all(typed.lower().endswith(word.text[:replaced].lower()) for word, replaced in words.after(typed))


def test_a_statement_is_complete_at_its_semicolon() -> None:
    """Not inside of a text, a name or a comment; commands and empty lines are."""
    assert [is_complete(text) for text in ("SELECT 1;", "SELECT 'ä';\n", ".tables", "", "SELECT ';' ;")] == [True] * 5
    assert not any(is_complete(text) for text in ("SELECT 1", "SELECT 'a;", 'SELECT "a;', "SELECT 1 -- ;", "/* ;"))


def test_lines_with_secrets_are_not_kept(tmp_path: Path) -> None:
    """Neither those that look like one nor those that make one for DuckDB."""
    lines = _Lines(tmp_path / "lines")
    for line in ("FROM events;", "CREATE SECRET (TYPE s3, KEY_ID 'a');", "SELECT 'ghp_" + "a1B2" * 9 + "';"):
        lines.append_string(line)
    assert list(_Lines(tmp_path / "lines").load_history_strings()) == ["FROM events;"]


def _take_terminal() -> None:
    """Have Ctrl-C signal this process, also where tests run in the background, which hear no such signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, folder: Path) -> None:
        self._own, other = pty.openpty()
        env = environment({"XDG_DATA_HOME": str(folder / "data"), "TERM": "xterm", "PAGER": "cat", "COLUMNS": "100"})
        command = [*COMMAND, "sql", "--history", "h"]
        self.process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=other, stdout=other, stderr=other, start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - there are no threads here
        )  # fmt: skip
        os.close(other)
        self.shown = ""

    def types(self, text: str) -> None:
        """Keys."""
        os.write(self._own, text.encode())

    def sees(self, pattern: str, patience: float = 60) -> None:
        """Wait until something was shown since the last time."""
        end = time.monotonic() + patience
        while not re.search(pattern, self.shown):
            ready, _, _ = select.select([self._own], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{pattern} not in {self.shown[-2000:]}"
            shown = os.read(self._own, 65536).decode(errors="replace")
            if "\x1b[6n" in shown:
                self.types("\x1b[1;1R")  # where the cursor is
            self.shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
        self.shown = self.shown[re.search(pattern, self.shown).end() :]

    def close(self) -> int:
        """End of input; returns the code it exits with."""
        self.types("\x04")
        code = self.process.wait(60)
        os.close(self._own)
        return code


def test_the_shell_on_a_terminal(place: Path) -> None:
    """A statement of two lines, a query that is cancelled, a long answer, and the lines kept for this user alone."""
    terminal = Terminal(place)
    terminal.sees("Ctrl-C cancels a query")
    terminal.sees("history>")
    terminal.types("SELECT count(*) AS failed\r")
    terminal.types("FROM failures;\r")
    terminal.sees(r"failed[^0-9]+3\D")
    terminal.sees("history>")
    terminal.types("SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE a.range % 7 = b.range;\r")
    terminal.sees("range;")
    time.sleep(0.5)
    terminal.types("\x03")
    terminal.sees("cancelled")
    terminal.sees("history>")
    terminal.types("SELECT 'row ' || i AS name FROM range(1500) t(i);\r")
    terminal.sees("row 999")
    terminal.sees("and 500 more rows")
    terminal.sees("history>")
    assert terminal.close() == 0
    kept = place / "data" / "trustfold" / "sql_lines"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "+FROM failures;" in kept.read_text()
