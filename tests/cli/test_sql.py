"""`trustfold sql`: forms of answers, and the shell."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import orjson
import pytest
from command_line import COMMAND, environment, trustfold
from recorded import told
from story import Story

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


@pytest.mark.slow
@pytest.mark.parametrize(("program", "option"), [("harlequin", "--read-only"), ("duckdb", "-readonly")])
def test_a_shell_opens_the_views(place: Path, tmp_path: Path, program: str, option: str) -> None:
    """The installed shell gets a file that it may read alone; its exit code is ours, and the file is gone after it."""
    shell = tmp_path / program
    shell.write_text(
        f"#!{sys.executable}\nimport duckdb, sys\nfile = sys.argv[2]\n"
        "with duckdb.connect(file, read_only=True) as read:\n"
        "    print(sys.argv[1], file, read.sql('SELECT count(*) FROM failures').fetchall())\nsys.exit(3)\n"
    )
    shell.chmod(0o755)
    code, shown = on_a_terminal(["sql", "--history", "h"], place, {"PATH": str(tmp_path)})
    assert code == 3
    found = re.search(rf"{option} (\S+) \[\((\d+),\)\]", shown)
    assert found is not None, shown
    assert found[2] == "3"
    assert not Path(found[1]).exists()


def test_without_a_shell_it_is_said_how_to_get_one(place: Path, tmp_path: Path) -> None:
    """And what works without."""
    code, shown = on_a_terminal(["sql", "--history", "h"], place, {"PATH": str(tmp_path)})
    assert code == 2
    assert "pip install harlequin" in shown


def on_a_terminal(arguments: list[str], folder: Path, env: dict[str, str]) -> tuple[int, str]:
    """Run the command on a terminal of its own; returns its exit code and what was shown."""
    own, other = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env=environment(env), stdin=other, stdout=other, stderr=other,
        start_new_session=True,
    )  # fmt: skip
    os.close(other)
    shown = b""
    with contextlib.suppress(OSError):  # Linux ends a terminal that nobody has open with an error
        while part := os.read(own, 65536):
            shown += part
    os.close(own)
    return process.wait(60), shown.decode()
