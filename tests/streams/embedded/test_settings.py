"""Settings in the embedded engine: kept with the batch, there after a restart, gone with a batch that was not kept."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import orjson
import pytest
from fixed_rules import NudgeRules, Policy, Rules
from story import Story
from trustfold.rules.levels import SettingLevel, set_by
from trustfold.schemas.settings import SettingsOverrides
from trustfold.schemas.vocabulary import NudgeLevel, RecoveryMode
from trustfold.streams.embedded.engine import EmbeddedEngine, SubmitRequest, source_in_force
from trustfold.streams.embedded.store import StoreError
from trustfold.streams.embedded.store_views import StoreViews


def settings_of(story: Story) -> list[SubmitRequest]:
    """The story's records as requests, in order."""
    return [SubmitRequest(topic, [value]) for topic, value in story.records]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store.sqlite"


def looping() -> Story:
    """A workspace without nudges, and a model that repeats itself in it."""
    story = Story()
    story.saves("workspace:w1", nudge_enabled=False)
    return story.works("read_file", {"path": "/a"}, times=3)


def test_settings_outlive_the_engine(path: Path) -> None:
    """Saved before a restart, in effect after it; readers beside the engine see them too."""
    story = looping()
    saved, *events = settings_of(story)
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.submit([saved])
    with EmbeddedEngine.open(path) as engine:
        receipts = engine.submit(events)
        types = [output.type for receipt in receipts for output in receipt.outputs]
        assert "pattern.detected" in types
        assert "nudge.issued" not in types
        assert StoreViews.open(path).scopes() == {"workspace:w1": SettingsOverrides(nudge_enabled=False)}


def test_settings_and_events_of_one_batch_keep_their_order(path: Path) -> None:
    """Settings hold from their place in the batch on; the log keeps that place, so a replay of it agrees."""
    story = Story()
    story.works("read_file", {"path": "/a"}, times=3)
    story.saves("workspace:w1", nudge_enabled=False)
    story.works("read_file", {"path": "/a"}, times=1)
    with EmbeddedEngine.open(path, Rules()) as engine:
        outputs = [output for receipt in engine.submit(settings_of(story)) for output in receipt.outputs]
        assert [output for output in outputs if output.topic != "outcomes"] == [
            output for output in story.outputs if output.topic != "outcomes"
        ]
        topics = [row[0] for row in engine._store.connection.execute("SELECT topic FROM log ORDER BY seq")]
    assert topics == ["rules", *(topic for topic, _ in story.records)]


def test_settings_of_a_batch_that_was_not_kept_do_not_hold(path: Path) -> None:
    """Nothing of a failed commit stays, in memory neither."""
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine._store.connection.execute(
            "CREATE TEMP TRIGGER no BEFORE INSERT ON main.settings BEGIN SELECT raise(FAIL, 'no'); END"
        )
        with pytest.raises(StoreError):
            engine.submit(settings_of(looping())[:1])
        assert engine.stream_time == 0
        assert engine.source.scopes() == {}
        engine._store.connection.execute("DROP TRIGGER no")
        engine.submit(settings_of(looping())[:1])
        assert engine.source.scoped


def test_a_bad_record_is_a_dead_letter_that_can_be_mended(path: Path) -> None:
    """Counted in the receipt, kept with its reason, and taken when it is republished under rules that know it."""
    story = Story()
    story.saves("workspace:w1", policies={"plan": {"enabled": False}})
    with EmbeddedEngine.open(path, Rules()) as engine:
        (receipt,) = engine.submit(settings_of(story))
        assert (receipt.accepted, receipt.dead_letters) == (0, 1)
        (letter,) = engine.views.dead_letters()
        body = orjson.loads(letter.output.value or b"")
        assert (body["topic"], body["path"]) == ("settings", "$.overrides.policies.plan")
        engine.rebase(Rules(policies={"plan": Policy(requires="plan", before=("edit",))}))
        assert engine.republish([letter.offset]) == []
        assert not engine.source.of("w1", "").policies["plan"].enabled


def test_a_store_without_an_engine_knows_all_levels(path: Path) -> None:
    """Rules, environment, scopes and sessions: a command that opens the store resolves what the engine would."""
    story = Story()
    story.saves("user:ada", nudge_level="gentle")
    story.session_sets(recovery_mode="ask")
    environment = SettingsOverrides(recovery_mode=RecoveryMode.AUTO)
    with EmbeddedEngine.open(path, Rules(nudges=NudgeRules(level=NudgeLevel.DIRECT)), environment) as engine:
        engine.submit(settings_of(story))
    views = StoreViews.open(path)
    source = source_in_force(views)
    levels = source.levels("w1", "ada", views.session("s1"))
    assert {level: set_by(overrides) for level, overrides in levels.items()} == {
        SettingLevel.ENVIRONMENT: {"recovery_mode": "auto"},
        SettingLevel.SESSION: {"recovery_mode": "ask"},
        SettingLevel.WORKSPACE: {},
        SettingLevel.USER: {"nudge_level": "gentle"},
    }
    assert views.session("nobody") == ""
    assert source.base.nudges.level is NudgeLevel.DIRECT
    with EmbeddedEngine.open(path) as engine:
        assert engine.source.environment == environment


def test_a_store_of_before_there_were_settings_goes_on(path: Path) -> None:
    """An older file gets its table at the next opening; until then it reads as one without settings."""
    EmbeddedEngine.open(path, Rules()).close()
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE settings")
    connection.commit()
    connection.close()
    assert StoreViews.open(path).scopes() == {}
    with EmbeddedEngine.open(path) as engine:
        engine.submit(settings_of(looping())[:1])
    assert list(StoreViews.open(path).scopes()) == ["workspace:w1"]
