"""The broker fixture gives a Kafka that works, and the private one survives what is done to it."""

import asyncio
import re

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from broker_kit import Broker, create_topics, new_prefix
from broker_kit.mock import Mock
from local_kafka import LocalKafka

KINDS = {"given", "container", "local", "mock"}


async def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Write the values to the topic and wait until the broker has acknowledged each."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        for sent in [await producer.send(topic, value, key=value) for value in values]:
            await sent
    finally:
        await producer.stop()


async def consume(bootstrap: str, topic: str, count: int, group: str | None = None) -> list[bytes]:
    """Read that many records from the topic's beginning, as a member of the group if one is given."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
    )
    await consumer.start()
    try:
        async with asyncio.timeout(30):
            return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


async def partition_count(bootstrap: str, topic: str) -> int:
    """How many partitions clients see."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        return len(consumer.partitions_for_topic(topic) or ())
    finally:
        await consumer.stop()


VALUES = [f"{number}".encode() for number in range(200)]


def test_it_says_what_it_is(broker: Broker) -> None:
    """The broker tells its kind and its address, and only the mock keeps nothing."""
    assert broker.kind in KINDS
    assert re.fullmatch(r"\S+:\d+", broker.bootstrap)
    assert broker.bootstrap in broker.description
    assert broker.durable is (broker.kind != "mock")


def test_round_trip(broker: Broker, topic_prefix: str) -> None:
    """What a producer writes a consumer reads."""

    async def trip() -> list[bytes]:
        await create_topics(broker, {topic_prefix + "events": 3})
        await produce(broker.bootstrap, topic_prefix + "events", VALUES)
        return await consume(broker.bootstrap, topic_prefix + "events", len(VALUES))

    assert sorted(asyncio.run(trip())) == sorted(VALUES)


def test_a_group_reads_on_where_it_left(broker: Broker, topic_prefix: str) -> None:
    """A consumer group that comes back continues after the records it has committed."""
    topic, group = topic_prefix + "events", topic_prefix + "group"

    async def part(count: int) -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
        )
        await consumer.start()
        try:
            async with asyncio.timeout(30):
                records = [await consumer.getone() for _ in range(count)]
            await consumer.commit({TopicPartition(topic, 0): records[-1].offset + 1})
            return [record.value for record in records]
        finally:
            await consumer.stop()

    async def twice() -> list[bytes]:
        await create_topics(broker, {topic: 1})
        await produce(broker.bootstrap, topic, VALUES)
        return await part(50) + await part(150)

    assert asyncio.run(twice()) == VALUES


def test_topics_have_the_partitions_asked_for(broker: Broker, topic_prefix: str) -> None:
    """Each topic is created with exactly the partitions it is to have."""
    wanted = {topic_prefix + "one": 1, topic_prefix + "five": 5, topic_prefix + "twelve": 12}

    async def counts() -> dict[str, int]:
        await create_topics(broker, wanted)
        return {topic: await partition_count(broker.bootstrap, topic) for topic in wanted}

    assert asyncio.run(counts()) == wanted


def test_prefixes_are_unique_and_legal() -> None:
    """Tests of one name get different prefixes, of characters Kafka takes, with room for a topic's name."""
    name = "test_ümläut[case with spaces/and more]" + "x" * 300
    first, second = new_prefix(name), new_prefix(name)
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9-]+\.", first)
    assert len(first) < 100


@pytest.mark.durable_broker
def test_topics_have_the_settings_asked_for(broker: Broker, topic_prefix: str) -> None:
    """A topic's settings arrive at the broker."""
    topic = topic_prefix + "state"

    async def attempt() -> str:
        await create_topics(broker, {topic: 2}, config={topic: {"cleanup.policy": "compact"}})
        return await cleanup_policy(broker.bootstrap, topic)

    assert asyncio.run(attempt()) == "compact"


@pytest.mark.durable_broker
def test_unknown_topics_are_not_made_up(broker: Broker, topic_prefix: str) -> None:
    """A misspelt topic is an error and not a new topic, as in a well-kept production."""
    if broker.kind == "given":
        pytest.skip("whoever runs the broker decides")

    async def seen() -> bool:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.describe_topics([topic_prefix + "evnets"])
            return topic_prefix + "evnets" in await admin.list_topics()
        finally:
            await admin.close()

    assert asyncio.run(seen()) is False


@pytest.mark.durable_broker
def test_a_topic_cannot_be_created_twice(broker: Broker, topic_prefix: str) -> None:
    """Two tests that share a topic by mistake are told so."""

    async def twice() -> None:
        await create_topics(broker, {topic_prefix + "events": 1})
        await create_topics(broker, {topic_prefix + "events": 1})

    with pytest.raises(ValueError, match="already exists"):
        asyncio.run(twice())


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_restart_keeps_the_data(own_kafka: LocalKafka, end: str) -> None:
    """After a stop and after a kill -9 it comes back at its address with every acknowledged record."""
    before = own_kafka.bootstrap
    whole = Broker(before, "local", "our own")

    async def fill() -> None:
        await create_topics(whole, {"events": 4})
        await produce(before, "events", VALUES)

    asyncio.run(fill())
    getattr(own_kafka, end)()
    assert not own_kafka.running
    own_kafka.restart()
    assert own_kafka.bootstrap == before
    assert sorted(asyncio.run(consume(before, "events", len(VALUES), group="readers"))) == sorted(VALUES)


def test_the_mock_has_exact_partitions_too() -> None:
    """The last resort speaks Kafka's protocol: exact partitions, and a round trip."""
    mock = Mock()
    if (reason := mock.missing()) is not None:
        pytest.skip(reason)
    broker = mock.open()

    async def trip() -> tuple[int, list[bytes]]:
        await create_topics(broker, {"events": 7})
        await produce(broker.bootstrap, "events", VALUES)
        return await partition_count(broker.bootstrap, "events"), await consume(broker.bootstrap, "events", len(VALUES))

    try:
        partitions, values = asyncio.run(trip())
    finally:
        broker.close()
        broker.close()  # harmless
    assert partitions == 7
    assert sorted(values) == sorted(VALUES)


async def cleanup_policy(bootstrap: str, topic: str) -> str:
    """What the broker holds as the topic's clean-up policy."""
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        [reply] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        entries = reply.resources[0][4]
        return next(entry[1] for entry in entries if entry[0] == "cleanup.policy")
    finally:
        await admin.close()
