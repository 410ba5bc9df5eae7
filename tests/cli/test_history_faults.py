"""The history from the command line when something is wrong: whose fault it is, and what to do next."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import orjson
import pytest
from command_line import trustfold
from recorded import told
from story import Story
from trustfold.errors import ConfigError
from trustfold.history.files import data_files
from trustfold.history.filters import moment_of
from trustfold.history.report_page import section
from trustfold.history.reports import BY_NAME, QuestionAnswer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with a small history."""
    told(tmp_path / "h", Story(model="m").fails("search", http_status=503, times=6))
    return tmp_path


def refused(folder: Path, *arguments: str, code: int = 2, stdin: bytes = b"") -> str:
    """What a command says that cannot be done; never with a traceback."""
    done = trustfold(*arguments, cwd=folder, stdin=stdin)
    text = done.stderr.decode()
    assert "Traceback" not in text
    assert done.returncode == code, text
    return text


@pytest.mark.parametrize("since", ["99999999999d", "999999d", "0001-01-01T00:00+14:00"])
def test_a_time_before_all_time_is_refused(since: str) -> None:
    """No number is too large for a clear word."""
    with pytest.raises(ConfigError, match="before all time"):
        moment_of(since)


def test_a_limit_beyond_everything_is_refused(folder: Path) -> None:
    """Before a query is run."""
    assert "is not in the range" in refused(folder, "history", "tools", "--history", "h", "--limit", "9" * 20)


def test_a_damaged_file_is_named(folder: Path) -> None:
    """With what to do about it."""
    (file,) = data_files(folder / "h", "events")
    for content in (file.path.read_bytes()[:3000], b""):
        file.path.write_bytes(content)
        text = refused(folder, "report", "--history", "h", code=1)
        assert f"{file.path.name} is damaged or no Parquet file" in text
        assert "move it out of the history" in text


def test_files_of_others_are_left_alone(folder: Path) -> None:
    """What an analyst has put beside ours is not read."""
    (file,) = data_files(folder / "h", "events")
    duckdb.execute(f"COPY (SELECT 'x' AS time, 1 AS id) TO '{file.path.with_name('mine.parquet')}'")
    done = trustfold("history", "overview", "--history", "h", "--json", cwd=folder)
    assert orjson.loads(done.stdout)["rows"][0]["events"] == 12


def test_any_directory_will_do(folder: Path) -> None:
    """Also one whose name a pattern of files would take for more than itself."""
    odd = "it's [my] ?history*"
    shutil.move(folder / "h", folder / odd)
    done = trustfold("history", "overview", "--history", odd, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout)["rows"][0]["calls"] == 6


def test_a_file_is_no_history(folder: Path) -> None:
    """A directory is wanted."""
    (folder / "run.ndjson").write_bytes(b"")
    assert "is a file; name the directory" in refused(folder, "report", "--history", "run.ndjson")


@pytest.mark.slow
def test_sql_takes_what_people_type(folder: Path) -> None:
    """Several statements, `.tables` anywhere, nothing at all, names that are not there."""
    several = trustfold("sql", "--history", "h", "--json", cwd=folder, stdin=b"SELECT 1 AS a;\nSELECT 2 AS b; -- end\n")
    assert several.stdout.splitlines() == [b'{"a":1}', b'{"b":2}']
    assert b"failure_signatures" in trustfold("sql", ".tables", "--history", "h", cwd=folder).stdout
    assert "there is no query" in refused(folder, "sql", "--history", "h")
    wrong = refused(folder, "sql", "FROM nothere", "--history", "h", code=1)
    assert "nothere does not exist" in wrong
    assert "`trustfold sql .tables`" in wrong
    assert "give only one of" in refused(folder, "sql", "SELECT 1", "--print", "--history", "h")


def test_any_value_can_be_shown(folder: Path) -> None:
    """Numbers that are none, numbers beyond JSON, two columns of one name."""
    query = (
        "SELECT 'nan'::DOUBLE AS n, '-inf'::DOUBLE AS i, 170141183460469231731687303715884105727::HUGEINT AS h, 1 AS h "
        "FROM events LIMIT 1"  # for which few views must be made
    )
    assert b"-inf" in trustfold("sql", query, "--history", "h", cwd=folder).stdout
    row = orjson.loads(trustfold("sql", query, "--history", "h", "--json", cwd=folder).stdout)
    assert row == {"n": None, "i": None, "h": "170141183460469231731687303715884105727", "h_1": 1}


def test_a_name_commands_no_terminal(tmp_path: Path) -> None:
    """An escape sequence in a tool's name is shown, not obeyed."""
    told(tmp_path / "h", Story().works("\x1b]0;owned\x07\x1b[2Jsearch"))
    shown = trustfold("sql", "SELECT tool_name FROM tool_calls", "--history", "h", cwd=tmp_path).stdout
    assert b"search" in shown
    assert b"\x1b" not in shown


@pytest.mark.slow
def test_a_saved_catalogue_is_of_the_time_asked_for_and_destroys_nothing(folder: Path) -> None:
    """`--since` holds for it; another file of that name stays as it is."""
    for _ in range(2):  # an older catalogue may be replaced
        done = trustfold("sql", "--save", "c.duckdb", "--since", "2099-01-01", "--history", "h", cwd=folder)
        assert done.returncode == 0, done.stderr
    with duckdb.connect(str(folder / "c.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(0,)]
    with duckdb.connect(str(folder / "own.duckdb")) as connection:
        connection.execute("CREATE TABLE own AS SELECT 42")
    assert "is not a catalogue" in refused(folder, "sql", "--save", "own.duckdb", "--history", "h")
    assert (
        b"TIMESTAMP '2099" in trustfold("sql", "--print", "--since", "2099-01-01", "--history", "h", cwd=folder).stdout
    )


@pytest.mark.slow
def test_whatif_refuses_what_it_would_not_heed(folder: Path) -> None:
    """Other rules that are wrong, a time after everything."""
    (folder / "r.toml").write_text("[breakers.tool]\nconsecutive_failures = 2\n")
    common = ("--history", "h")
    assert "folding" not in refused(folder, "whatif", "--rules", "none.toml", *common)
    late = refused(folder, "whatif", "--rules", "r.toml", "--since", "2099-01-01", *common)
    assert "no recorded session passes: since 2099-01-01" in late


def test_import_never_writes_over_what_it_reads(tmp_path: Path) -> None:
    """The log stays as it is."""
    chat = orjson.dumps({"messages": [{"role": "user", "content": "hi"}]})
    (tmp_path / "chat.json").write_bytes(chat)
    assert "is one of the logs to import" in refused(
        tmp_path, "import", "chat.json", "--from", "openai", "--output", "chat.json"
    )
    assert (tmp_path / "chat.json").read_bytes() == chat


def test_words_and_numbers_stay_whole_on_a_narrow_terminal(folder: Path) -> None:
    """Eighty columns: texts fold between words, times between date and time; nine numbers leave room for a name."""
    shown = trustfold("history", "recent", "--history", "h", cwd=folder).stdout.decode()
    assert "2026-01-05" in shown
    assert "10:00:" in shown
    assert max(map(len, shown.splitlines())) <= 80
    query = "SELECT 123456 AS more, * EXCLUDE (judged) FROM tool_health(min_calls := 1)"
    shown = trustfold("sql", query, "--history", "h", cwd=folder).stdout.decode()
    assert "search" in shown
    assert "123,456" in shown
    assert "no room for:" in shown  # the last columns, named
    assert max(map(len, shown.splitlines())) <= 80


def test_a_page_can_be_read_on_a_phone() -> None:
    """Plots and tables scroll instead of shrinking, what is left out is said, a plot has a name."""
    rows = [(f"tool {number}", number + 1, number, None, None) for number in range(60)]
    names = ["tool", "loops", "wasted_calls", "wasted_seconds", "wasted_usd"]
    totals = {"all_calls": 1770, "all_seconds": None, "all_usd": None}
    text = section(QuestionAnswer(BY_NAME["loops"], names, rows, totals=totals))
    assert '<svg aria-label="What do loops cost?"' in text
    assert text.count('<div class="scroll" tabindex="0" role="region"') == 2
    assert "and 45 rows more" in text
    assert text.count("<g><title>") == 40
