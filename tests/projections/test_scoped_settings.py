"""Settings of users, workspaces and sessions in the folds: whom they reach, when, and what they leave alone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from fixed_rules import BehaviourRules, Rules
from hypothesis import given
from hypothesis import strategies as st
from story import Story
from streams_of_events import event_lines
from trustfold.projections import rule_source
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.rule_source import MAX_SESSION_BYTES, RuleSource
from trustfold.projections.topology import STAGES
from trustfold.rules.levels import SettingLevel
from trustfold.rules.older_shapes import RulesMisfit
from trustfold.schemas.settings import SettingsOverrides
from trustfold.schemas.vocabulary import NudgeLevel, RecoveryMode


def loops(story: Story, times: int = 3) -> Story:
    """The model repeats itself until it would be spoken to."""
    return story.works("read_file", {"path": "/a"}, times=times)


def enters(story: Story, session: str, *, workspace: str = "w1", user: str | None = None) -> Story:
    """Another session begins; what follows is told of it."""
    story.session, story.workspace = session, workspace
    story.event("session.started", user_id=user)
    return story


def dead_letter(topology: LocalTopology, topic: str, story: Story) -> dict[str, Any]:
    """The one dead letter that the story's last record becomes."""
    (letter,) = topology.feed(topic, (story.records[-1][1],))
    assert letter.topic == "dead-letters"
    found: dict[str, Any] = orjson.loads(letter.value or b"")
    return found


def test_a_workspace_switches_its_nudges_off_and_no_other() -> None:
    """Saved for one workspace, heard in none of its sessions, and as before in the next."""
    story = Story()
    story.saves("workspace:w1", nudge_enabled=False)
    loops(story)
    assert story.patterns()
    assert story.nudges() == []
    loops(enters(story, "s2", workspace="w2"))
    assert [name for name, _ in story.nudges()] == ["repetitive_calls"]


def test_a_user_is_reached_in_every_workspace_that_says_nothing_itself() -> None:
    """The user's level holds where the workspace has none; the workspace's own word goes before it."""
    story = Story()
    story.saves("user:ada", nudge_level="off")
    story.saves("workspace:w2", nudge_level="direct")
    loops(enters(story, "s1", user="ada"))
    assert story.nudges() == []
    loops(enters(story, "s2", workspace="w2", user="ada"), times=4)
    assert [kind for _, kind in story.nudges()] == ["gentle", "direct"]


def test_a_session_goes_before_its_workspace_and_the_environment_before_both() -> None:
    """Session over workspace; what the environment says is not overruled by anyone."""
    story = Story()
    story.saves("workspace:w1", nudge_enabled=False)
    story.session_sets(nudge_enabled=True)
    assert [name for name, _ in loops(story).nudges()] == ["repetitive_calls"]
    silent = Story(rules=RuleSource(Rules(), SettingsOverrides(nudge_level=NudgeLevel.OFF)))
    silent.session_sets(nudge_level="full")
    assert loops(silent).nudges() == []


def test_a_change_holds_from_its_place_on_and_keeps_the_state() -> None:
    """Two repeats, then another ladder: the third is judged by the new one, with the two before it counted."""
    story = Story()
    loops(story, times=2)
    assert story.patterns() == []
    story.saves("workspace:w1", rules={"behaviour": {"repetitive_calls": {"minor": 2}}})
    loops(story, times=1)
    assert story.patterns() == [("repetitive_calls", "minor", 3)]
    story.saves("workspace:w1")
    loops(story, times=1)
    assert story.patterns()[-1] == ("repetitive_calls", "moderate", 4)


def test_trust_follows_workspace_and_user() -> None:
    """A workspace that escalates at once does; a user's own threshold holds where the workspace has none."""
    story = Story()
    story.saves("workspace:w1", rules={"default_rule": {"count_threshold": 1}})
    story.saves("user:ada", rules={"default_rule": {"count_threshold": 2}})
    story.fails("search")
    assert story.moves("search") == [("trusted", "escalated")]
    enters(story, "s2", workspace="w2").fails("search")
    assert len(story.moves("search")) == 1
    enters(story, "s2", workspace="w2", user="ada").fails("search")
    assert len(story.moves("search")) == 2


def test_circuits_follow_the_workspace() -> None:
    """One failure opens the circuit where the workspace says so."""
    story = Story()
    story.saves("workspace:w1", rules={"breakers": {"tool": {"consecutive_failures": 1}}})
    story.fails("search")
    assert story.circuit("tool:search") == [("closed", "open")]
    enters(story, "s2", workspace="w2").fails("search")
    assert len(story.circuit("tool:search")) == 1


def test_promotion_follows_the_user() -> None:
    """A user for whom two workspaces are enough; for another it takes as many as ever."""
    story = Story()
    story.saves("user:ada", rules={"fleet": {"workspaces": 2}})
    for number, (user, workspace) in enumerate([("bob", "w1"), ("bob", "w2"), ("ada", "w3"), ("ada", "w4")]):
        enters(story, f"s{number}", workspace=workspace, user=user).fails("search", times=6)
    promoted = story.all("trust.changed", scope="user")
    assert [(one["user_id"], one["to"]) for one in promoted] == [("ada", "escalated")]


def recovering(story: Story) -> Story:
    """A tool that has earned its trust back, but for the last word."""
    story.fails("search", times=3).after(minutes=60)
    return story.works("search", times=3)


@pytest.mark.parametrize(
    "saved",
    [
        lambda story: story.saves("workspace:w1", recovery_mode="ask"),
        lambda story: story.saves("user:ada", recovery_mode="ask"),
        lambda story: story.session_sets(recovery_mode="ask"),
    ],
    ids=["workspace", "user", "session"],
)
def test_recovery_asks_where_a_level_says_so(saved: Any) -> None:
    """Saved for the workspace, for the user or for the session: the tool waits for a person."""
    assert recovering(Story()).moves("search")[-1] == ("recovering", "trusted")
    story = Story()
    enters(story, "s1", user="ada")
    saved(story)
    recovering(story)
    assert story.moves("search")[-1] == ("escalated", "recovering")
    assert story.all("trust.recovery_pending", key="search")


def test_the_environments_recovery_mode_reaches_sessions_that_say_otherwise() -> None:
    """The kill switch of recovery: what the environment asks for is carried with every outcome."""
    story = Story(rules=RuleSource(Rules(), SettingsOverrides(recovery_mode=RecoveryMode.ASK)))
    story.session_sets(recovery_mode="auto")
    assert recovering(story).moves("search")[-1] == ("escalated", "recovering")


def test_a_tombstone_and_an_empty_record_clear_a_scope() -> None:
    """Both say: this scope overrides nothing any more."""
    story = Story()
    story.saves("workspace:w1", nudge_enabled=False)
    topology = LocalTopology(Rules())
    topology.feed("settings", (story.records[-1][1],))
    assert topology.source.scoped
    topology.feed("settings", (None,), key=b"workspace:w1")
    assert not topology.source.scoped
    topology.feed("settings", (story.records[-1][1],))
    story.saves("workspace:w1", nudge_enabled=None)
    topology.feed("settings", (story.records[-1][1],))
    assert not topology.source.scoped


@pytest.mark.parametrize(
    ("scope", "overrides", "path"),
    [
        ("workspace:w1", {"rules": {"nudges": {"levle": "off"}}}, "$.overrides.rules.nudges.levle"),
        ("user:ada", {"rules": {"breakers": {}}}, "$.overrides.rules.breakers"),
        ("workspace:w1", {"policies": {"a": {"requires": "x", "before": []}}}, "$.overrides.policies.a"),
        ("workspace:w1", {"nudge_level": "loud"}, "$.overrides.nudge_level"),
        ("team:x", {}, "$.scope"),
    ],
)
def test_settings_that_do_not_fit_are_dead_letters(scope: str, overrides: dict[str, Any], path: str) -> None:
    """With the path of the fault; what the scope had set before goes on to hold."""
    story, topology = Story(), LocalTopology(Rules())
    story.saves("workspace:w1", nudge_enabled=False)
    topology.feed("settings", (story.records[-1][1],))
    story.saves(scope, **overrides)
    letter = dead_letter(topology, "settings", story)
    assert (letter["topic"], letter["path"]) == ("settings", path)
    assert topology.source.scopes() == {"workspace:w1": SettingsOverrides(nudge_enabled=False)}


def test_a_record_under_another_scopes_key_is_refused() -> None:
    """Compaction keeps one record a key: a record under a wrong one would take the place of another scope's."""
    story, topology = Story(), LocalTopology(Rules())
    story.saves("workspace:w1", nudge_enabled=False)
    (letter,) = topology.feed("settings", (story.records[-1][1],), key=b"workspace:w2")
    assert b"it must be the scope" in (letter.value or b"")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"rules": {"trust": {"max_fine_keys": 1}}}, "trust is shared by all sessions of a workspace"),
        ({"rules": {"behaviour": {"window_stepps": 9}}}, "did you mean 'window_steps'?"),
        ({"rules": {"behaviour": {"announce_phrases": ["x" * MAX_SESSION_BYTES]}}}, "at most 16384; save them"),
    ],
)
def test_a_session_that_sets_too_much_is_a_dead_letter(overrides: dict[str, Any], said: str) -> None:
    """What is shared, what is no rule, what is too long; what the session had set before stays."""
    story, topology = Story(), LocalTopology(Rules())
    story.session_sets(nudge_level="gentle")
    topology.feed("events", (story.records[-1][1],))
    story.session_sets(**overrides)
    letter = dead_letter(topology, "events", story)
    assert letter["path"].startswith("$.settings")
    assert said in letter["message"]
    state = topology.processors["session"].state("s1")
    assert state is not None
    assert state.overrides == '{"nudge_level":"gentle"}'


def test_other_rules_take_effect_without_losing_state() -> None:
    """Rules are swapped under a running fold; what scopes override lies over the new ones too."""
    source = RuleSource()
    source.set("workspace:w2", SettingsOverrides(nudge_enabled=False))
    story = Story(rules=source)
    loops(story, times=2)
    assert story.patterns() == []
    swapped = Rules(behaviour=BehaviourRules(repetitive_calls=BehaviourRules().introspection_loop))
    source.rebase(swapped)
    loops(story, times=1)
    assert story.patterns() == [("repetitive_calls", "minor", 3)]
    assert source.of("w2", "") == RuleSource(swapped, SettingsOverrides(nudge_enabled=False)).rules


def test_with_the_kill_switch_records_are_passed_over() -> None:
    """Nothing is folded, decided or due; switched on again, events fold as if nothing had been."""
    story = Story(rules=RuleSource(Rules(), SettingsOverrides(rules={"enabled": False})))
    loops(story, times=6).fails("search", times=6).tick()
    assert story.outputs == []


def test_while_nobody_overrides_anything_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual case costs one look: no stage is asked whose settings hold."""
    for stage in STAGES:
        monkeypatch.setattr(type(stage), "scopes", lambda *_: pytest.fail("somebody was asked"))
    story = loops(Story(), times=4).fails("search", times=4)
    assert story.patterns()


def test_resolved_rules_are_shared_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever overrides nothing shares the plain rules' resolution; the memory of combinations has an end."""
    source = RuleSource()
    source.set("user:ada", SettingsOverrides(nudge_enabled=False))
    assert source.of("w1", "ada") is source.of("w2", "ada")
    assert source.of("w1", "bob") == source.rules
    monkeypatch.setattr(rule_source, "MAX_RESOLVED", 50)
    for number in range(150):
        source.of("w", "", f'{{"nudge_level":"off","rules":{{"calls":{{"deadline_ms":{number + 1}}}}}}}')
    assert len(source._resolved) <= 50
    with pytest.raises(RulesMisfit):
        source.set("user:ada", SettingsOverrides(rules={"nonsense": 1}))
    assert not source.of("w1", "ada").nudges.enabled


@given(event_lines(), st.data())
def test_settings_among_events_give_the_same_again_and_after_a_restart(lines: list[bytes], data: st.DataObject) -> None:
    """With settings recorded at their places, the same input gives the same outputs, resumed anywhere."""
    story = Story()
    for overrides in ({"nudge_enabled": False}, {"rules": {"default_rule": {"count_threshold": 1}}}, {}):
        story.saves("workspace:w1", **overrides)
    inputs = [("events", line) for line in lines]
    for _, record in story.records:
        inputs.insert(data.draw(st.integers(0, len(inputs))), ("settings", record))
    cut = data.draw(st.integers(0, len(inputs)))

    def folded(topology: LocalTopology, part: list[tuple[str, bytes]]) -> list[Any]:
        return [output for topic, value in part for output in topology.feed(topic, (value,))]

    whole = folded(LocalTopology(Rules()), inputs)
    first = LocalTopology(Rules())
    outputs = folded(first, inputs[:cut])
    kept = {
        (name, key): snapshot for name, processor in first.processors.items() for key, snapshot in processor.snapshot()
    }
    source = RuleSource(Rules())
    source.replace(first.source.scopes())
    second = LocalTopology(source, load=lambda stage, key: kept.get((stage, key)), next_offsets=first.next_offsets)
    assert outputs + folded(second, inputs[cut:]) == whole


def test_a_cooldown_without_end_is_refused() -> None:
    """Times that no calendar holds would make every call of the scope a dead letter."""
    patch = {"trust": {"default_rule": {"cooldown_seconds": 1e12}}}
    source = RuleSource(Rules())
    with pytest.raises(RulesMisfit, match="31536000"):
        source.set("workspace:w1", SettingsOverrides(rules=patch))


def test_a_copy_of_rules_is_equal_until_one_of_the_two_changes() -> None:
    """Rules that a what-if sets on a copy do not change the original."""
    quiet = SettingsOverrides(nudge_enabled=False)
    source = RuleSource(Rules(), SettingsOverrides(nudge_level=NudgeLevel.DIRECT))
    source.set("user:ada", quiet)
    copy = source.copy()
    assert copy.equals(source)
    assert copy.levels("w1", "ada", '{"nudge_level":"off"}') == {
        SettingLevel.ENVIRONMENT: SettingsOverrides(nudge_level=NudgeLevel.DIRECT),
        SettingLevel.SESSION: SettingsOverrides(nudge_level=NudgeLevel.OFF),
        SettingLevel.WORKSPACE: None,
        SettingLevel.USER: quiet,
    }
    copy.set("workspace:w1", quiet)
    assert not copy.equals(source)
    assert source.scopes() == {"user:ada": quiet}
    assert not source.equals(RuleSource(source.base))
    assert not RuleSource().equals(RuleSource(Rules(enabled=False)))
