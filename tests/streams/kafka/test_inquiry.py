"""Admin requests that aiokafka lacks: rights, groups and the brokers' clock."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from broker_kit import Broker
from click.testing import CliRunner
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka_run import environment, settings_for
from local_kafka import LocalKafka
from local_kafka_jars import KafkaInstallation
from local_kafka_node import SHORT_LIVED
from trustfold.cli.main import main
from trustfold.streams.kafka.broker_queries import OPERATIONS, clock_of, group_of, rights_on
from trustfold.streams.kafka.topics import create_topics

pytestmark = pytest.mark.durable_broker

EVERYTHING = frozenset(OPERATIONS)


@pytest.fixture(scope="module")
def own_kafka(kafka_jars: KafkaInstallation) -> Iterator[LocalKafka]:
    """A broker that knows rights; everything is allowed until a test denies it."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with LocalKafka(
        java_options=SHORT_LIVED,
        settings={"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"},
    ) as kafka:
        yield kafka


def ask(kafka: LocalKafka | Broker, question: Callable[[Any], Awaitable[Any]]) -> Any:
    """Ask with an admin client."""

    async def work() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        await admin.start()
        try:
            return await question(admin)
        finally:
            await admin.close()

    return asyncio.run(work())


def leave(kafka: LocalKafka, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Leave everybody one right on a topic or group; Describe comes with it, the others are gone."""
    allow, pattern = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})  # must outlive what it was asked for
    binding = AclBinding(kind, name, pattern, "User:ANONYMOUS", "*", operation, allow)
    for done in client.create_acls([binding]).values():
        done.result(60)


@pytest.mark.slow
def test_what_is_not_allowed_is_told_with_the_remedy(own_kafka: LocalKafka) -> None:
    """A right that a topic or a group lacks is seen without trying it, and the doctor names what to grant."""
    settings = settings_for(own_kafka.bootstrap, "rights")
    asyncio.run(create_topics(settings))
    nudges = settings.topic("nudges")

    def checks() -> tuple[int, dict[str, list[str]]]:
        ours = {name: value for name, value in environment(settings).items() if name.startswith("TRUSTFOLD_")}
        done = CliRunner().invoke(main, ["doctor", "--json"], env=ours)
        found: dict[str, list[str]] = {}
        for one in json.loads(done.stdout)["checks"]:
            if one["status"] == "fix":
                found.setdefault(one["check"], []).append(f"{one['found']}; {one['advice']}")
        return done.exit_code, found

    assert ask(own_kafka, lambda admin: rights_on(admin, [nudges])) == {nudges: EVERYTHING}
    assert ask(own_kafka, lambda admin: group_of(admin, settings.app_id)).rights >= {"Read", "Describe"}
    assert checks() == (0, {})
    leave(own_kafka, ResourceType.TOPIC, nudges, AclOperation.READ)
    leave(own_kafka, ResourceType.GROUP, settings.app_id, AclOperation.DESCRIBE)
    assert ask(own_kafka, lambda admin: rights_on(admin, [nudges])) == {nudges: {"Read", "Describe"}}
    assert "Read" not in ask(own_kafka, lambda admin: group_of(admin, settings.app_id)).rights
    code, found = checks()
    assert code == 1
    grant = "kafka-acls --add --allow-principal User:…"
    assert found == {
        "rights as worker": [
            f"no Write on topic {nudges}; kafka-acls --add --allow-principal User:… --operation Write --topic {nudges}"
        ],
        f"group {settings.app_id}": [f"no Read on the group; {grant} --operation Read --group {settings.app_id}"],
    }


def test_the_brokers_clock_is_ours(broker: Broker) -> None:
    """On the same machine both clocks are the same, within what the question took."""
    clock = ask(broker, clock_of)
    assert abs(clock.ahead_s) <= clock.uncertain_s + 0.5
    assert clock.uncertain_s < 5
