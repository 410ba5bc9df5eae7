"""`trustfold story`: the same timeline in a terminal, from a store, a server, or a history."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner
from fixed_rules import Rules
from recorded import told
from story import Story
from trustfold.cli.main import main
from trustfold.schemas.session_timeline import (
    SessionTimeline,
    TimelineItem,
    TimelineLoop,
    TimelineNudge,
    TimelinePattern,
    TimelineStep,
)
from trustfold.streams.embedded.engine import EmbeddedEngine


def a_bad_session() -> Story:
    """A loop, and a failure of a call whose argument would clear the screen."""
    story = Story()
    story.says("I will look")
    story.works("bash", {"command": "git status"}, result="same", times=6)
    story.fails("deploy", {"to": "\x1b[2Jprod"}, message="no space left", times=3)
    story.event("session.ended", reason="done")
    return story


def stored(folder: Path) -> Path:
    """The store of that session."""
    path = folder / "store.sqlite"
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.ingest([value for _, value in a_bad_session().records])
    return path


def test_a_session_is_told_in_a_terminal(tmp_path: Path) -> None:
    """Loops with their price and patterns first, then what happened; nothing in it commands the terminal."""
    ran = CliRunner().invoke(main, ["story", "s1", "--store", str(stored(tmp_path))])
    assert ran.exit_code == 0, ran.output
    text = " ".join(ran.output.split())
    assert "git status ×6, same result: 5 calls wasted" in text
    assert "repetitive calls 3 → 4 → 6 of 3, 4, 6 `git status`: " in text
    assert "repetitive calls (severe) 6 times: bash `git status`" in text
    assert "no space left" in text
    assert "\x1b[2J" not in ran.output


def test_a_pattern_without_a_severe_step_is_told(tmp_path: Path) -> None:
    """A missing program never gets severe: the document has the two thresholds that there are."""
    path = tmp_path / "store.sqlite"
    story = Story().fails("bash", {"command": "deploy"}, with_="", message="deploy: command not found", times=3)
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.ingest([value for _, value in story.records])
    ran = CliRunner().invoke(main, ["story", "s1", "--store", str(path)])
    assert ran.exit_code == 0, ran.exception
    assert "missing environment 3 of 3, 5 `deploy`" in " ".join(ran.output.split())


def test_programs_get_one_document(tmp_path: Path) -> None:
    """`--json`, cut by the same options."""
    path = str(stored(tmp_path))
    ran = CliRunner().invoke(main, ["story", "s1", "--store", path, "--json", "--errors"])
    document = orjson.loads(ran.output)
    assert all(one["failing"] for one in document["items"])
    ran = CliRunner().invoke(main, ["story", "s1", "--store", path, "--json", "--limit", "2"])
    assert len(orjson.loads(ran.output)["items"]) == 2


def test_the_command_knows_the_document_by_the_names_it_has(tmp_path: Path) -> None:
    """Every field that the command reads is one that a server writes."""
    ran = CliRunner().invoke(main, ["story", "s1", "--store", str(stored(tmp_path)), "--json"])
    document = orjson.loads(ran.output)
    patterns = document["patterns"]
    for struct, written in (
        (SessionTimeline, [document]),
        (TimelineLoop, document["loops"]),
        (TimelinePattern, patterns),
        (TimelineStep, [step for one in patterns for step in one["steps"]]),
        (TimelineNudge, [nudge for one in patterns for nudge in one["nudges"]]),
        (TimelineItem, document["items"]),
    ):
        assert set(struct.__struct_fields__) <= {name for one in written for name in one}


def test_a_recorded_history_tells_the_same(tmp_path: Path) -> None:
    """What is no longer in the log is told from the history; results are digests there, and equal ones are equal."""
    told(tmp_path / "history", a_bad_session())
    ran = CliRunner().invoke(main, ["story", "s1", "--history", str(tmp_path / "history"), "--json"])
    assert ran.exit_code == 0, ran.output
    recorded = orjson.loads(ran.output)
    ran = CliRunner().invoke(main, ["story", "s1", "--store", str(stored(tmp_path)), "--json"])
    live = orjson.loads(ran.output)
    assert [one["times"] for one in recorded["loops"]] == [one["times"] for one in live["loops"]]
    assert recorded["verdicts"] == live["verdicts"]
    assert [one["pattern"] for one in recorded["patterns"]] == [one["pattern"] for one in live["patterns"]]


@pytest.mark.parametrize("has_store", [False, True], ids=["no store", "a store without it"])
def test_the_history_beside_the_store_is_read_too(
    has_store: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that the store does not hold come from the recorded history, unless a place is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    told(tmp_path / ".trustfold" / "history", Story(session="s2").works("bash", {"command": "ls"}))
    if has_store:
        stored(tmp_path / ".trustfold").rename(tmp_path / ".trustfold" / "trustfold.sqlite")
    ran = CliRunner().invoke(main, ["story", "s2"])
    assert ran.exit_code == 0, ran.output
    assert "Session s2" in ran.output
    ran = CliRunner().invoke(main, ["story", "s2", "--store", str(stored(tmp_path))])
    assert "unknown session 's2'" in ran.output


def test_without_a_store_and_a_history_both_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the missing store and history, and the commands that make them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    ran = CliRunner().invoke(main, ["story", "s1"])
    assert ran.exit_code == 2
    assert "no such store; connect an agent" in ran.output
    assert "nothing is recorded in .trustfold/history; `trustfold record FILE` does that" in ran.output


def test_an_unknown_session_is_said(tmp_path: Path) -> None:
    """Words and what to do, no empty page."""
    ran = CliRunner().invoke(main, ["story", "nobody", "--store", str(stored(tmp_path))])
    assert ran.exit_code == 2
    assert "unknown session 'nobody'" in ran.output
