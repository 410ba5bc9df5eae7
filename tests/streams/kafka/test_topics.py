"""The topic plan, and what is said about a cluster that differs from it."""

import asyncio
import dataclasses
from collections.abc import Coroutine
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from broker_kit import Broker
from counting import TOPOLOGY
from trustfold.errors import ConfigError
from trustfold.schemas.topics import TOPICS
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.topics import (
    CHANGELOG_CONFIG,
    TopicDifference,
    TopicPlan,
    _compare,
    check_topics,
    create_topics,
    find_differences,
    plan,
)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(work)


def test_the_plan_is_the_catalogue_and_a_changelog_for_each_stage() -> None:
    """Every catalogue topic under the prefix, and compacted changelogs with the same number of partitions."""
    planned = {topic.name: topic for topic in plan(KafkaSettings(partitions=5), TOPOLOGY)}
    assert set(planned) == {f"trustfold.{name}" for name in TOPICS} | {
        "trustfold-session-changelog",
        "trustfold-tool-changelog",
    }
    assert {topic.partitions for topic in planned.values()} == {5}
    assert planned["trustfold-tool-changelog"].config["cleanup.policy"] == "compact"
    assert planned["trustfold.state"].config["cleanup.policy"] == "compact"
    keyed = {name for name, topic in planned.items() if topic.keyed}
    assert keyed == {"trustfold.events", "trustfold.outcomes", "trustfold.commands"} | {
        "trustfold-session-changelog",
        "trustfold-tool-changelog",
    }


CHANGELOG = TopicPlan("x-session-changelog", 12, 0, CHANGELOG_CONFIG, "", keyed=True, essential=True)


def differences(partitions: int = 12, **config: str) -> dict[str, TopicDifference]:
    """What is said about a changelog that has these settings instead."""
    found = CHANGELOG_CONFIG | {name.replace("_", "."): value for name, value in config.items()}
    return {difference.what: difference for difference in _compare(CHANGELOG, partitions, found)}


def test_a_topic_as_planned_differs_in_nothing() -> None:
    """Larger limits are no difference, and settings that may not be read are not guessed at."""
    assert not differences()
    assert not differences(min_compaction_lag_ms="86400000")
    assert not list(_compare(CHANGELOG, 12, None))


def test_partitions_and_clean_up_of_a_changelog_matter() -> None:
    """A wrong count or a deleting changelog stops a worker; the line names both values and what to do."""
    found = differences(partitions=6, cleanup_policy="delete")
    assert all(difference.fatal for difference in found.values())
    assert "partitions is 6, should be 12" in str(found["partitions"])
    assert "TRUSTFOLD_PARTITIONS=6" in str(found["partitions"])
    assert "cleanup.policy is delete, should be compact" in str(found["cleanup.policy"])


def test_other_settings_are_the_operators_choice() -> None:
    """A different segment size is reported and stops nobody."""
    found = differences(segment_bytes="1048576", min_compaction_lag_ms="0")
    assert set(found) == {"segment.bytes", "min.compaction.lag.ms"}
    assert not any(difference.fatal for difference in found.values())


@pytest.fixture
def settings(broker: Broker, topic_prefix: str) -> KafkaSettings:
    """A deployment of this test's own."""
    if not broker.durable:
        pytest.skip("the mock broker has no topic administration")
    return KafkaSettings(
        bootstrap=broker.bootstrap, topic_prefix=topic_prefix, app_id=f"{topic_prefix}app", partitions=3
    )


def test_create_then_check_on_a_broker(settings: KafkaSettings) -> None:
    """What is created is as planned; creating again changes nothing; a missing topic is named."""
    with pytest.raises(ConfigError, match="events does not exist; run `trustfold topics create`"):
        run(check_topics(settings, TOPOLOGY))
    assert set(run(create_topics(settings, TOPOLOGY))) == {topic.name for topic in plan(settings, TOPOLOGY)}
    assert run(create_topics(settings, TOPOLOGY)) == []
    assert run(find_differences(settings, TOPOLOGY)) == []


def test_what_differs_is_named_precisely(settings: KafkaSettings) -> None:
    """A topic made by hand with other values is reported with both, and left as it is."""

    async def by_hand() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=settings.servers)
        await admin.start()
        await admin.create_topics([NewTopic(settings.topic("events"), 2, 1, topic_configs={"retention.ms": "1000"})])
        await admin.close()

    run(by_hand())
    assert settings.topic("events") not in run(create_topics(settings, TOPOLOGY))
    found = {
        (difference.topic, difference.what): difference for difference in run(find_differences(settings, TOPOLOGY))
    }
    events = settings.topic("events")
    assert set(found) == {(events, "partitions"), (events, "retention.ms")}
    assert (found[events, "partitions"].wanted, found[events, "partitions"].found) == ("3", "2")
    with pytest.raises(ConfigError, match="partitions is 2, should be 3") as refused:
        run(check_topics(settings, TOPOLOGY))
    assert "retention" not in str(refused.value)


def test_a_silent_broker_is_named(settings: KafkaSettings) -> None:
    """Without an answer the address is in the message."""
    with pytest.raises(ConfigError, match=r"no broker answers at 127\.0\.0\.1:1;"):
        run(check_topics(dataclasses.replace(settings, bootstrap="127.0.0.1:1"), TOPOLOGY))


def test_a_refusal_of_the_brokers_is_passed_on(settings: KafkaSettings) -> None:
    """More copies than brokers: the brokers' own words."""
    with pytest.raises(ConfigError, match="InvalidReplicationFactor"):
        run(create_topics(dataclasses.replace(settings, replication=40), TOPOLOGY))
