"""Secrets of publishers that are no guard: planted in every field, searched in all that is stored or shown."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import orjson
import pytest
from command_line import trustfold
from otlp import request, span
from planted_secrets import EVENTS, events_with, found_in, lines_of_all_kinds
from secret_kinds import FEW
from trustfold.projections.local_topology import LocalTopology
from trustfold.security.redaction import HIDDEN, redact_record
from trustfold.streams.embedded.engine import EmbeddedEngine


@contextmanager
def open_to_all() -> Iterator[None]:
    """A umask that takes nothing away from anybody."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which everything was stored under a umask of 0: SQLite, and Parquet recorded from it."""
    directory = tmp_path_factory.mktemp("planted")
    lines = lines_of_all_kinds(every=24)
    (directory / "raw.ndjson").write_bytes(b"\n".join(lines))
    with open_to_all(), EmbeddedEngine.open(directory / "kept" / "store.sqlite") as engine:
        for start in range(0, len(lines), 1000):
            engine.ingest(lines[start : start + 1000])
        recorded = trustfold(
            "record",
            "--store",
            directory / "kept" / "store.sqlite",
            "--history",
            "kept/history",
            "--once",
            cwd=directory,
        )
    assert recorded.returncode == 0, recorded.stderr
    return directory


def test_every_kind_in_every_single_field_is_hidden_at_the_door() -> None:
    """What the engine, the recorder, `replay` and `import` do with each record before anything else."""
    for number, (kind, (text, secret)) in enumerate(FEW.items()):
        left = b"\n".join(map(redact_record, events_with(text, number, every=4)))
        texts = left + left.replace(b"\\\\", b"\\").replace(b"\\n", b"\n")
        assert secret.encode() not in texts, (kind, found_in(left))


@pytest.mark.slow
def test_the_store_and_the_history_hold_no_secret(place: Path) -> None:
    """SQLite file, its log beside it, and every row of every Parquet file."""
    everything = b"".join(path.read_bytes() for path in (place / "kept").glob("store*"))
    rows = duckdb.sql(
        f"SELECT to_json(t) FROM read_parquet('{place}/kept/history/*/*/*.parquet', union_by_name=true) t"
    )
    lines = [row[0].encode() for row in rows.fetchall()]
    assert len(lines) > 10 * len(FEW)
    assert found_in(everything) == {}
    assert found_in(b"\n".join(lines)) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("status", "--store", "kept/store.sqlite"),
        ("status", "--store", "kept/store.sqlite", "--json"),
        ("dead-letters", "list", "--store", "kept/store.sqlite"),
        ("replay", "raw.ndjson"),
        ("replay", "raw.ndjson", "--json"),
        ("history", "failures", "--history", "kept/history"),
        ("history", "sessions", "--json", "--history", "kept/history"),
        ("report", "--history", "kept/history", "--html", "report.html"),
    ],
    ids=" ".join,
)
def test_the_terminal_shows_no_secret(place: Path, command: tuple[str, ...]) -> None:
    """Nor do pages and machine-readable output; a page is for its owner alone."""
    with open_to_all():
        done = trustfold(*command, cwd=place)
    shown = done.stdout + done.stderr
    if "report.html" in command:
        page = place / "report.html"
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        shown += page.read_bytes()
    assert len(shown) > 100, done
    assert b"usage" not in shown.lower(), done
    assert found_in(shown) == {}


def test_what_is_stored_is_for_its_owner_alone(place: Path) -> None:
    """Files 0600, directories 0700, though the umask would have let everybody read them."""
    for path in (place / "kept", *(place / "kept").rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "command"),
    [
        ("letters.ndjson", ("replay", "few.ndjson", "--dead-letters", "letters.ndjson")),
        ("events.ndjson", ("import", "spans.json", "--output", "events.ndjson")),
        ("rows.csv", ("sql", "COPY (FROM failures LIMIT 1) TO 'rows.csv'", "--history", "kept/history")),
    ],
    ids=["replay", "import", "sql"],
)
def test_files_that_commands_make_are_for_their_owner_alone(place: Path, made: str, command: tuple[str, ...]) -> None:
    """Whatever the umask; a file that was there before keeps its mode."""
    (place / "few.ndjson").write_bytes(b"\n".join((place / "raw.ndjson").read_bytes().splitlines()[:50]))
    (place / "spans.json").write_bytes(
        orjson.dumps(
            request(
                span(
                    "execute_tool fetch",
                    1.0,
                    2.0,
                    {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "fetch"},
                )
            )
        )
    )
    with open_to_all():
        done = trustfold(*command, cwd=place)
    assert (place / made).exists(), done
    assert stat.S_IMODE((place / made).stat().st_mode) == 0o600
    if made != "rows.csv":
        (place / made).chmod(0o640)
        trustfold(*command, cwd=place)
        assert stat.S_IMODE((place / made).stat().st_mode) == 0o640


def test_the_log_is_folded_as_it_is_stored(place: Path) -> None:
    """Folding the stored log again comes to the same decisions: what was hidden was hidden before the fold."""
    with EmbeddedEngine.open(place / "kept" / "store.sqlite") as engine:
        log = [
            row[0]
            for row in engine.views._connection.execute("SELECT value FROM log WHERE topic='events' ORDER BY seq")
        ]
        kept = [one.output.id for one in engine.views.decisions(("escalations", "breakers", "nudges"), limit=100_000)]
    again = LocalTopology(engine.rules).feed("events", log)
    assert [out.id for out in again if out.topic in {"escalations", "breakers", "nudges"}] == kept
    assert [redact_record(value) for value in log] == log


def test_ids_that_hold_a_secret_still_tell_things_apart() -> None:
    """They are replaced by a digest."""
    one, other = (
        orjson.loads(redact_record(orjson.dumps({"session_id": f"ghp_{name * 12}"}))) for name in ("aB3", "aB4")
    )
    assert one["session_id"] != other["session_id"]
    assert one["session_id"].startswith("[redacted:")


def test_little_of_ordinary_code_and_prose_is_redacted() -> None:
    """At most one character in a hundred, over 100 kB of this repository's code and pages."""
    root = Path(__file__).parents[2]
    sample = ""
    for path in sorted((*root.glob("*/*.py"), *root.glob("docs/*.md"), *root.glob("streams/*/*.py"))):
        if "secret" not in path.name and len(sample) < 200_000:
            sample += path.read_text()[:3000]
    shown = orjson.loads(redact_record(orjson.dumps({"text": sample})))["text"]
    rest = re.sub(re.escape(HIDDEN), "", shown)
    assert len(sample) > 100_000
    assert (len(sample) - len(rest)) / len(sample) < 0.01


def test_records_seen_before_change_no_redaction() -> None:
    """Values that are remembered as clean, and times and ids in their place, hide no secret behind them."""
    clean = EVENTS["tool_call.finished"]
    for number, (kind, (text, secret)) in enumerate(FEW.items()):
        redact_record(orjson.dumps(clean))
        for field in ("time", "id", "session_id", "tool_name", "result"):
            left = redact_record(orjson.dumps(clean | {field: text, "call_id": str(number)}))
            assert secret.encode() not in left, (kind, field)
