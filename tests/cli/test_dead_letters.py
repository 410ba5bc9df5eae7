"""`trustfold dead-letters`: records that could not be processed are listed and republished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import trustfold, up
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded.engine import EmbeddedEngine

BAD = [b"not json", b'{"type":"nonsense","schema_version":"1.0"}', b"\xff", b"x" * 400]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with four dead letters."""
    path = tmp_path / "store.sqlite"
    with EmbeddedEngine.open(path, RuleSet()) as engine:
        engine.ingest(BAD)
    return path


def test_the_list_says_what_is_wrong(store: Path, tmp_path: Path) -> None:
    """Each dead letter has a reason, a place and an excerpt; the totals are beside the data."""
    done = trustfold("dead-letters", "list", "--store", store, cwd=tmp_path, env={"COLUMNS": "120"})
    shown = done.stdout.decode()
    assert "not_json" in shown
    assert "not json" in shown
    assert "x" * 100 not in shown
    assert "4 dead letters: not_json 2" in done.stderr.decode()


def test_a_narrow_terminal_shows_whole_words(store: Path, tmp_path: Path) -> None:
    """On 80 columns reason, place and fault of a dead letter are lines of their own, none is a column of letters."""
    done = trustfold("dead-letters", "list", "--store", store, cwd=tmp_path, env={"COLUMNS": "80"})
    shown = [line.strip() for line in done.stdout.decode().splitlines()]
    assert any(line.endswith("not_json events $") for line in shown), shown
    assert any("not JSON" in line for line in shown)
    assert max(map(len, shown)) <= 80


def test_json_is_a_line_each(store: Path, tmp_path: Path) -> None:
    """With --json each is a whole record with its reference; --reason chooses."""
    done = trustfold("dead-letters", "list", "--store", store, "--json", cwd=tmp_path)
    letters = [json.loads(line) for line in done.stdout.splitlines()]
    assert [letter["ref"] for letter in letters] == ["1", "2", "3", "4"]
    assert letters[3]["value"] == "x" * 400
    assert done.stderr == b""
    few = trustfold("dead-letters", "list", "--store", store, "--json", "--reason", "invalid_utf8", cwd=tmp_path)
    assert [json.loads(line)["ref"] for line in few.stdout.splitlines()] == ["3"]


def test_republishing_takes_a_choice_and_a_yes(store: Path, tmp_path: Path) -> None:
    """Nothing is published again by accident; records that are still wrong fail again and give exit code 1."""
    nothing = trustfold("dead-letters", "republish", "--store", store, cwd=tmp_path)
    assert nothing.returncode == 2
    assert "name dead letters" in nothing.stderr.decode()
    asked = trustfold("dead-letters", "republish", "--all", "--store", store, cwd=tmp_path)
    assert asked.returncode == 2
    assert "this republishes 4 records; add --yes" in asked.stderr.decode()
    unknown = trustfold("dead-letters", "republish", "77", "--yes", "--store", store, cwd=tmp_path)
    assert unknown.returncode == 2
    assert "there is no dead letter 77" in unknown.stderr.decode()
    done = trustfold("dead-letters", "republish", "1", "2", "--yes", "--store", store, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == b"2 published again, 2 failed again\n"
    left = trustfold("dead-letters", "list", "--store", store, "--json", cwd=tmp_path)
    assert [json.loads(line)["ref"] for line in left.stdout.splitlines()] == ["3", "4", "5", "6"]


def test_a_running_server_republishes(store: Path, tmp_path: Path) -> None:
    """While `up` has the store, the order goes to it."""
    with up("--store", store, cwd=tmp_path) as server:
        by_store = trustfold(
            "dead-letters", "republish", "--reason", "invalid_utf8", "--yes", "--store", store, cwd=tmp_path
        )
        assert by_store.stderr == b"1 published again, 1 failed again\n"
        by_url = trustfold("dead-letters", "republish", "--all", "--yes", "--url", server.url, cwd=tmp_path)
        assert by_url.stderr == b"4 published again, 4 failed again\n"
        assert len(server.lines("/v1/dead-letters?all=true")) == 9


def test_no_dead_letters(tmp_path: Path) -> None:
    """An empty list says so on standard error, and is an empty output."""
    EmbeddedEngine.open(tmp_path / "store.sqlite").close()
    done = trustfold("dead-letters", "list", "--store", "store.sqlite", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"no dead letters\n")
