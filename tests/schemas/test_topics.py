"""The topic catalogue: names, keys, retention and rights as data."""

from typing import get_args

import pytest
from trustfold.errors import ConfigError
from trustfold.schemas import commands, decisions, events
from trustfold.schemas.topics import DEFAULT_PARTITIONS, DEFAULT_PREFIX, TOPICS, TopicRole, full_name

DAY_MS = 86_400_000


def test_the_catalogue_is_the_contract() -> None:
    """Every topic of the contract with its clean-up and retention, and no other."""
    assert {name: (topic.cleanup, topic.retention_ms) for name, topic in TOPICS.items()} == {
        "events": ("delete", 7 * DAY_MS),
        "outcomes": ("delete", DAY_MS),
        "standings": ("delete", DAY_MS),
        "commands": ("delete", 30 * DAY_MS),
        "settings": ("compact", None),
        "rules": ("compact", None),
        "escalations": ("delete", 30 * DAY_MS),
        "breakers": ("delete", 30 * DAY_MS),
        "nudges": ("delete", 7 * DAY_MS),
        "suggestions": ("delete", 7 * DAY_MS),
        "state": ("compact", None),
        "dead-letters": ("delete", 30 * DAY_MS),
    }
    assert DEFAULT_PARTITIONS == 12


def test_every_type_has_exactly_one_topic() -> None:
    """Who sees a type knows where it stands."""
    types = [wire for topic in TOPICS.values() for wire in topic.types]
    everything = (*get_args(events.Event), *get_args(commands.Command), *get_args(decisions.Decision))
    assert len(types) == len(set(types))
    assert set(types) == {kind.__struct_config__.tag for kind in everything} | {"settings.changed"}


def test_only_operators_command() -> None:
    """Commands and settings are the operators' alone; on dead letters they mark what they published again."""
    assert {name for name, topic in TOPICS.items() if TopicRole.OPERATOR in topic.writers} == {
        "commands",
        "settings",
        "dead-letters",
    }
    assert TOPICS["settings"].writers == {TopicRole.OPERATOR}
    assert TOPICS["commands"].writers == {TopicRole.OPERATOR, TopicRole.DASHBOARD}


def test_a_platform_needs_few_rights() -> None:
    """An agent platform writes events and reads what it must act on."""
    assert {name for name, topic in TOPICS.items() if TopicRole.PLATFORM in topic.writers} == {"events"}
    readable = {name for name, topic in TOPICS.items() if TopicRole.PLATFORM in topic.readers}
    assert readable == {"nudges", "escalations", "state", "suggestions"}


def test_settings_are_in_kafkas_words() -> None:
    """The settings of a topic can be handed to a broker as they are."""
    assert TOPICS["events"].config == {"cleanup.policy": "delete", "retention.ms": "604800000"}
    assert TOPICS["state"].config == {"cleanup.policy": "compact"}
    assert TOPICS["dead-letters"].config["max.message.bytes"] == "8388608"


def test_a_prefix_makes_the_real_name() -> None:
    """The prefix stands before the catalogue name; there may be none."""
    assert full_name(DEFAULT_PREFIX, "dead-letters") == "trustfold.dead-letters"
    assert full_name("", "events") == "events"


@pytest.mark.parametrize("prefix", ["my topics.", "a/b", "ü", "x" * 240])
def test_a_prefix_that_no_broker_takes_is_refused(prefix: str) -> None:
    """A prefix is refused when it is set, not when the first record is written."""
    with pytest.raises(ConfigError, match="prefix"):
        full_name(prefix, "dead-letters")


def test_an_unknown_topic_is_told_the_catalogue() -> None:
    """A name outside of the catalogue is the caller's mistake."""
    with pytest.raises(ConfigError, match="dead-letters"):
        full_name("", "deadletters")
