"""Secrets of publishers that are no guard: planted in every field, searched in all that is stored or shown."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest
from command_line import trustfold
from secret_kinds import KINDS
from trustfold.schemas.examples import EXAMPLES
from trustfold.schemas.redaction import HIDDEN, redact_record
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.topology import LocalTopology

EVENTS = {
    kind: fields
    for kind, fields in EXAMPLES.items()
    if kind.partition(".")[0]
    in "session turn tool_call user model permission failure success feedback synthesis".split()
    and "caused_by" not in fields
}


CLOSED = frozenset("type time schema_version severity status settings strategy results limits".split())
"""Fields that the contract checks: an event with other values is a dead letter."""


def planted(value: Any, text: str) -> Any:
    """A value with a secret in every text."""
    if isinstance(value, dict):
        return {name: planted(inner, text) for name, inner in value.items()}
    return [planted(inner, text) for inner in value] if isinstance(value, list) else text


def events_with(text: str, number: int) -> Iterator[bytes]:
    """Every type of event with a secret in every field, and in one field at a time of what is else a good event."""
    for place, example in enumerate(EVENTS.values()):
        texts = {name: inner for name, inner in example.items() if not isinstance(inner, bool | int | float)}
        whole = example | {name: planted(inner, text) for name, inner in texts.items() if name not in CLOSED}
        yield orjson.dumps(whole | {"id": f"{number}-{place} {text}"[:256]})
        for field in example if (number + place) % 8 == 0 else ():  # some are refused, and become dead letters
            yield orjson.dumps(example | {"id": f"{number}-{place}-{field}", field: planted(example[field], text)})
        yield orjson.dumps(whole)[:-1]  # broken off
    base = EVENTS["tool_call.finished"]
    for place, result in enumerate(
        (text, {"output": text}, {"content": [{"text": f"got {text}"}]}, {"password": text})
    ):
        yield orjson.dumps(base | {"id": f"{number}-r{place}", "result": result, "call_id": f"c{number}-{place}"})


def found_in(everything: bytes) -> dict[str, bytes]:
    """Kinds whose secret stands in something, each with what stands around it."""
    texts = everything + everything.replace(b"\\\\", b"\\").replace(b"\\n", b"\n")
    found = {}
    for kind, (_, secret) in KINDS.items():
        at = texts.find(secret.encode())
        if at >= 0:
            found[kind] = texts[max(0, at - 120) : at + 60]
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which everything was stored: SQLite, and Parquet recorded from it."""
    directory = tmp_path_factory.mktemp("planted")
    lines = [line for number, (text, _) in enumerate(KINDS.values()) for line in events_with(text, number)]
    (directory / "raw.ndjson").write_bytes(b"\n".join(lines))
    with EmbeddedEngine.open(directory / "kept" / "store.sqlite") as engine:
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


@pytest.mark.slow
def test_the_store_and_the_history_hold_no_secret(place: Path) -> None:
    """SQLite file, its log beside it, and every row of every Parquet file."""
    everything = b"".join(path.read_bytes() for path in (place / "kept").glob("store*"))
    rows = duckdb.sql(
        f"SELECT to_json(t) FROM read_parquet('{place}/kept/history/*/*/*.parquet', union_by_name=true) t"
    )
    lines = [row[0].encode() for row in rows.fetchall()]
    assert len(lines) > 10 * len(KINDS)
    assert found_in(everything) == {}
    assert found_in(b"\n".join(lines)) == {}


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
    """Nor do pages and machine-readable output."""
    done = trustfold(*command, cwd=place)
    page = place / "report.html"
    shown = done.stdout + done.stderr + (page.read_bytes() if page.exists() else b"")
    assert len(shown) > 100, done
    assert b"usage" not in shown.lower(), done
    assert found_in(shown) == {}


def test_what_is_stored_is_for_its_owner_alone(place: Path) -> None:
    """Files 0600, directories 0700."""
    for path in (place / "kept", *(place / "kept").rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))


def test_the_log_is_folded_as_it_is_stored(place: Path) -> None:
    """Folding the stored log again comes to the same decisions: what was hidden was hidden before the fold."""
    with EmbeddedEngine.open(place / "kept" / "store.sqlite") as engine:
        log = [
            row[0]
            for row in engine.views._connection.execute("SELECT value FROM log WHERE topic='events' ORDER BY seq")
        ]
        kept = [one.output.id for one in engine.decisions(("escalations", "breakers", "nudges"), limit=100_000)]
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
