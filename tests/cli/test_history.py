"""The history from the command line: recorded, asked, reported, folded again."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import threading
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import orjson
import pytest
from command_line import started, trustfold, up
from recorded import ARRIVED, rows, small_event
from scenarios import ALL
from story import Story
from trustfold.cli.record import _from_store
from trustfold.history.files import claim, store_source
from trustfold.history.history_error import HistoryFull
from trustfold.history.recorder import PartitionRecorder
from trustfold.history.reports import BY_NAME, QUESTIONS
from trustfold.recording.store_recorder import StoreRecording
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded.engine import EmbeddedEngine
from waiting import PATIENCE_S, wait_until


def written(folder: Path) -> Path:
    """The scenarios of the use cases as a file of events."""
    file = folder / "events.ndjson"
    lines = [
        value.replace(b'"00000000-', b'"%08d-' % number)
        for number, name in enumerate(sorted(ALL))
        for _, value in ALL[name]().records
    ]
    file.write_bytes(b"\n".join(lines))
    return file


@pytest.fixture(scope="module")
def recorded_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a history of the scenarios in the default place, to be copied."""
    folder = tmp_path_factory.mktemp("recorded")
    done = trustfold("record", written(folder), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def recorded_files(recorded_before: Path, tmp_path: Path) -> Path:
    """The test's own copy of that directory."""
    return shutil.copytree(recorded_before, tmp_path, dirs_exist_ok=True)


def test_files_are_recorded_once(recorded_files: Path) -> None:
    """Events and what is decided over them; the same files again add nothing, other ones stand beside them."""
    root = recorded_files / ".trustfold/history"
    events = len((recorded_files / "events.ndjson").read_bytes().splitlines())
    assert rows(root, "SELECT count(*) FROM events WHERE appended IS NOT TRUE") == [(events,)]
    assert rows(root, "SELECT count(*) > 5 FROM decisions") == [(True,)]
    again = trustfold("record", "events.ndjson", cwd=recorded_files)
    assert b"0 records written" in again.stderr
    (recorded_files / "other.ndjson").write_bytes(b"")
    assert b"to .trustfold/history-2" in trustfold("record", "other.ndjson", cwd=recorded_files).stderr
    other = trustfold("record", "other.ndjson", "--history", ".trustfold/history", cwd=recorded_files)
    assert (other.returncode, b"name another directory" in other.stderr) == (2, True)


@pytest.mark.slow
def test_every_question_has_an_answer_for_people_and_for_machines(recorded_files: Path) -> None:
    """As a table and as JSON, alone and in the report; an unknown one is told which there are."""
    reported = orjson.loads(trustfold("report", "--json", cwd=recorded_files).stdout)
    assert set(reported) == {question.name for question in QUESTIONS}
    for question in (BY_NAME["patterns"], BY_NAME["now"]):
        done = trustfold("history", question.name, "--json", "--limit", "10", cwd=recorded_files)
        assert done.returncode == 0, done.stderr
        told = orjson.loads(done.stdout)
        assert told["question"] == question.title
        assert told["rows"] == reported[question.name]
    shown = trustfold("history", "tools", "--limit", "3", cwd=recorded_files)
    assert b"Which tools fail?" in shown.stdout
    assert b"Which models get stuck, and how?" in trustfold("report", cwd=recorded_files).stdout
    latest = orjson.loads(trustfold("history", "--json", "--limit", "2", cwd=recorded_files).stdout)
    assert len(latest["rows"]) == 2
    assert latest["rows"][0]["time"] >= latest["rows"][1]["time"]
    unknown = trustfold("history", "weather", cwd=recorded_files)
    assert (unknown.returncode, b"choose from now, look-first" in unknown.stderr) == (2, True)


def test_since_leaves_out_what_was_before(recorded_files: Path) -> None:
    """A time or a span; nonsense is refused."""
    everything = orjson.loads(trustfold("history", "overview", "--json", cwd=recorded_files).stdout)["rows"][0]
    later = orjson.loads(
        trustfold("history", "overview", "--since", "2026-01-05T10:20", "--json", cwd=recorded_files).stdout
    )["rows"][0]
    assert 0 < later["events"] < everything["events"]
    refused = trustfold("history", "--since", "yesterday", cwd=recorded_files)
    assert (refused.returncode, b"give a span" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_filters_and_several_histories(recorded_files: Path) -> None:
    """Every command takes them; a copy of a history adds nothing; an empty span is refused."""

    def tools(*options: str) -> set[str]:
        done = trustfold("sql", "SELECT DISTINCT tool_name FROM tool_calls", "--json", *options, cwd=recorded_files)
        assert done.returncode == 0, done.stderr
        return {orjson.loads(line)["tool_name"] for line in done.stdout.splitlines()}

    everything = tools()
    chosen = sorted(everything)[:2]
    assert tools("--tool", chosen[0], "--tool", chosen[1]) == set(chosen)
    assert tools("--session", "nobody") == tools("--until", "2026-01-01") == set()
    shutil.copytree(recorded_files / ".trustfold/history", recorded_files / "copy")
    count = ("sql", "SELECT count(*) AS n FROM events", "--json")
    twice = trustfold(*count, "--history", "copy", "--history", ".trustfold/history", cwd=recorded_files)
    assert twice.stdout == trustfold(*count, cwd=recorded_files).stdout
    refused = trustfold("report", "--since", "2026-01-06", "--until", "2026-01-05", cwd=recorded_files)
    assert (refused.returncode, b"the range is empty" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_a_period_is_compared_with_the_one_before(recorded_files: Path) -> None:
    """For people and for machines; what is not a span is refused, and so is the option where it means nothing."""
    done = trustfold("history", "compare", "--with", "10min", "--json", cwd=recorded_files)
    assert done.returncode == 0, done.stderr
    told = orjson.loads(done.stdout)
    assert told["signatures"][0]["seen"] in {"new", "back"}
    assert {row["kind"] for row in told["rates"]} == {"tool", "model"}
    assert told["before"] < told["since"] < told["until"]
    shown = trustfold("history", "compare", cwd=recorded_files)
    assert b"Which tools and models got worse?" in shown.stdout
    assert b"nothing before it is recorded" in shown.stderr  # its seven days hold everything
    assert b"against as long before" in trustfold("history", "compare", "--with", "4min", cwd=recorded_files).stderr
    for arguments in (
        ("compare", "--with", "a week"),
        ("compare", "--with", "9" * 30 + "w"),
        ("tools", "--with", "7d"),
    ):
        assert trustfold("history", *arguments, cwd=recorded_files).returncode == 2


def test_what_is_left_out_is_said(recorded_files: Path) -> None:
    """On the screen and in JSON."""
    shown = trustfold("history", "sessions", "--limit", "1", cwd=recorded_files)
    assert b"more rows; --limit shows more" in shown.stderr
    told = orjson.loads(trustfold("history", "sessions", "--limit", "1", "--json", cwd=recorded_files).stdout)
    assert (len(told["rows"]), told["left_out"] > 0) == (1, True)


def test_a_saved_catalogue_moves_with_its_history(
    recorded_files: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its paths are relative to it, and it is opened where it stands."""
    folder = recorded_files / ".trustfold"
    done = trustfold("sql", "--save", ".trustfold/c.duckdb", "--relative", cwd=recorded_files)
    assert done.returncode == 0, done.stderr
    moved = tmp_path_factory.mktemp("moved") / "there"
    folder.rename(moved)
    monkeypatch.chdir(moved)
    with duckdb.connect("c.duckdb", read_only=True) as connection:
        assert connection.execute("SELECT count(*) > 0 FROM tool_calls").fetchall() == [(True,)]
    assert trustfold("sql", "FROM events", "--relative", "--history", "history", cwd=moved).returncode == 2


class Page(HTMLParser):
    """What an HTML page asks for and whether its tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.asked: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count what is opened, note what would be fetched."""
        self.seen.add(tag)
        self.asked += [
            str(value) for name, value in attrs if name in {"src", "href"} and not str(value).startswith("#")
        ]
        if tag not in {"meta", "link", "br", "img", "input"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Elements of a plot close themselves."""
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close in order."""
        assert self.open.pop() == tag


def test_the_report_is_one_page_that_needs_nothing_else(recorded_files: Path) -> None:
    """Well-formed, with plots, no script and no request; names from events cannot break out of it.

    It opens in the browser that the environment names; without a file it is a temporary one, for the user alone.
    """
    story = Story(session="<script>alert(1)</script>")
    story.fails("<img src=x onerror=alert(1)>", times=4)
    lines = [value.replace(b'"00000000-', b'"00000099-') for _, value in story.records]
    (recorded_files / "evil.ndjson").write_bytes(b"\n".join(lines))
    trustfold("record", "events.ndjson", "evil.ndjson", "--history", "h", cwd=recorded_files)
    (recorded_files / "tmp").mkdir()
    there = {"BROWSER": "true %s", "TMPDIR": str(recorded_files / "tmp")}
    done = trustfold("report", "--history", "h", "--open", "--since", "2026-01-01", cwd=recorded_files, env=there)
    assert done.returncode == 0, done.stderr
    (made,) = (recorded_files / "tmp").glob("trustfold-report-*.html")
    assert made.stat().st_mode & 0o077 == 0
    text = made.read_text()
    assert "Look here first" in text
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.asked == []
    assert {"svg", "rect", "table"} <= page.seen
    assert "script" not in page.seen
    assert "img" not in page.seen
    assert "&lt;img src=x" in text


@pytest.mark.slow
def test_sql_of_ones_own(recorded_files: Path) -> None:
    """As an argument or from standard input; the SQL of the catalogue runs in plain DuckDB."""
    done = trustfold("sql", "SELECT count(*) AS n FROM failures", "--json", cwd=recorded_files)
    assert orjson.loads(done.stdout)["n"] > 0
    piped = trustfold("sql", cwd=recorded_files, stdin=b"SELECT pattern FROM nudge_effectiveness")
    assert b"announce_no_action" in piped.stdout
    explained = "SELECT count(*) AS n FROM duckdb_columns() WHERE table_name = 'failures' AND comment IS NOT NULL"
    assert orjson.loads(trustfold("sql", explained, "--json", cwd=recorded_files).stdout)["n"] > 0
    script = trustfold("sql", "--print", cwd=recorded_files).stdout.decode()
    with duckdb.connect() as connection:
        connection.execute(script)
        assert connection.execute("SELECT count(*) > 0 FROM sessions").fetchall() == [(True,)]


@pytest.mark.slow
def test_whatif_with_the_same_and_with_other_rules(recorded_files: Path) -> None:
    """The same rules make no difference; a higher threshold spares escalations, with examples."""
    (recorded_files / "same.toml").write_text("")
    (recorded_files / "other.toml").write_text("[trust.default_rule]\ncount_threshold = 9\n")
    same = trustfold("whatif", "--rules", "same.toml", cwd=recorded_files)
    assert b"No difference: both rules lead to the same decisions." in same.stdout
    told = orjson.loads(trustfold("whatif", "--rules", "same.toml", "--json", cwd=recorded_files).stdout)
    assert told["empty"]
    assert told["recorded_decided_again"] == told["recorded"] > 5
    other = orjson.loads(trustfold("whatif", "--rules", "other.toml", "--json", cwd=recorded_files).stdout)
    assert other["kinds"]["trust escalated"]["gone"] > 0
    assert {example["what"] for example in other["gone"]} >= {"trust escalated"}
    assert trustfold("whatif", cwd=recorded_files).returncode == 2


def test_a_missing_history_says_what_to_do(tmp_path: Path) -> None:
    """Every command that reads one."""
    (tmp_path / "r.toml").write_text("")
    for arguments in (("history",), ("report",), ("sql", "SELECT 1"), ("whatif", "--rules", "r.toml")):
        done = trustfold(*arguments, cwd=tmp_path)
        assert (done.returncode, b"`trustfold record` makes one" in done.stderr) == (2, True), arguments


def test_a_history_without_files_yet_says_when_they_appear(tmp_path: Path) -> None:
    """A recorder names the source of a directory before it writes the first file."""
    (tmp_path / "begun").mkdir()
    claim(tmp_path / "begun", store_source("", tmp_path / "trustfold.db"))
    done = trustfold("history", "--history", "begun", cwd=tmp_path)
    assert done.returncode == 2
    assert b"has written no file yet" in done.stderr


def test_up_records_beside_itself(tmp_path: Path) -> None:
    """What was acknowledged before the stop is in the files after it, which are at the default place."""
    with up("--history", cwd=tmp_path) as running:
        running.post("/v1/events", written(tmp_path).read_bytes())
        assert running.stop() == 0
    events = len((tmp_path / "events.ndjson").read_bytes().splitlines())
    assert rows(tmp_path / ".trustfold/history", "SELECT count(*) FROM events WHERE appended IS NOT TRUE") == [
        (events,)
    ]
    done = trustfold("record", "--once", "--store", ".trustfold/trustfold.sqlite", cwd=tmp_path)
    assert b"0 records written" in done.stderr


def test_files_and_a_store_are_recorded_in_one_folder(tmp_path: Path) -> None:
    """Each source has a directory; commands read them as one history, pages that of their store, and say which."""
    (tmp_path / "run.ndjson").write_bytes(small_event(1))
    assert trustfold("record", "run.ndjson", cwd=tmp_path).returncode == 0
    with up("--history", cwd=tmp_path) as server:
        server.post("/v1/events", small_event(2) + b"\n" + small_event(3, session_id="s2"))
        server.process.terminate()  # its orderly end writes the records
        assert server.process.wait(PATIENCE_S) == 0
    with up("--history", cwd=tmp_path) as server:
        page = wait_until(
            lambda: (
                (page := server.request("GET", "/history?since=all")[1]) and b"2 events of 2 sessions" in page and page
            ),
            what="the recorded events",
        )
        assert b".trustfold/history-2." in page
    claim(tmp_path / ".trustfold/history-3", "files another.ndjson")  # begun, and still without records
    done = trustfold("record", "--once", cwd=tmp_path)
    assert b"to .trustfold/history-2" in done.stderr
    assert trustfold("record", "run.ndjson", cwd=tmp_path).returncode == 0
    (row,) = orjson.loads(trustfold("history", "overview", "--json", cwd=tmp_path).stdout)["rows"]
    assert (row["events"], row["sessions"]) == (3, 2)


def test_another_store_at_the_same_path_is_noticed(tmp_path: Path) -> None:
    """Its offsets begin anew and would be taken for records that are there."""
    store = tmp_path / "store.sqlite"
    for expected in (0, 2):
        with EmbeddedEngine.open(store, RuleSet()) as engine:
            engine.ingest([small_event(1)])
        done = trustfold("record", "--once", "--store", store, "--history", "h", cwd=tmp_path)
        assert done.returncode == expected, done.stderr
        for path in tmp_path.glob("store.sqlite*"):
            path.unlink()


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """When the system takes no more bytes nothing half-written stays; with room again all is written."""
    recorder = PartitionRecorder(tmp_path)
    recorder.own("events", 0)
    for number in range(2000):
        recorder.add("events", 0, number, ARRIVED, b"s1", small_event(number))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(HistoryFull):
            recorder.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.glob("events/**/*.parquet"))
    recorder.flush()
    recorder.close()
    assert rows(tmp_path, "SELECT count(*) FROM events") == [(2000,)]


def test_import_writes_events_that_can_be_recorded(tmp_path: Path) -> None:
    """From a transcript to a question, through a pipe; a wrong format is told."""
    transcript = {"messages": [{"role": "user", "content": "x"}], "id": "t"}
    (tmp_path / "log.json").write_bytes(orjson.dumps(transcript))
    done = trustfold("import", "log.json", "--from", "openai", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = trustfold("record", "-", "--history", "h", cwd=tmp_path, stdin=done.stdout)
    assert kept.returncode == 0, kept.stderr
    assert rows(tmp_path / "h", "SELECT count(*) FROM events WHERE type = 'user.message'") == [(1,)]
    wrong = trustfold("import", "log.json", "--from", "otel", cwd=tmp_path)
    assert (wrong.returncode, b"no line looks like otel" in wrong.stderr) == (2, True)


def test_record_stops_when_told(tmp_path: Path) -> None:
    """Ctrl-C writes what waits."""
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RuleSet()) as engine:
        engine.ingest([small_event(number) for number in range(5)])
    with started(
        "record", "--store", "store.sqlite", "--history", "h", cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "Ctrl-C stops it" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    wait_until(lambda: rows(tmp_path / "h", "SELECT count(*) FROM events") == [(5,)], what="five rows")


def test_a_signal_ends_a_recording_of_a_store_whatever_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that comes while the recording takes or gives back the lock of what it waits for."""
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RuleSet()):
        pass

    def run(_recording: object, stopped: threading.Event, *, once: bool) -> None:
        del once
        with stopped._cond:
            signal.raise_signal(signal.SIGINT)
        assert stopped.wait(60)

    monkeypatch.setattr(StoreRecording, "run", run)
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    recorder = PartitionRecorder(tmp_path / "history")
    try:
        assert _from_store(recorder, tmp_path / "store.sqlite", None, once=False)
    finally:
        recorder.close()
        for number, handler in kept.items():
            signal.signal(number, handler)
