"""Publishing lines: keyed by session, counted, or refused."""

import asyncio
from pathlib import Path

import orjson
import pytest
from broker_kit import Broker
from counting import TOPOLOGY
from lane_harness import LaneHarness
from trustfold.errors import ConfigError
from trustfold.streams.kafka.outputs import partition_of
from trustfold.streams.kafka.publish import publish, session_key
from trustfold.streams.kafka.settings import KafkaSettings
from trustfold.streams.kafka.topics import create_topics


@pytest.mark.parametrize("line", [b"{", b"[]", b"{}", b'{"session_id": 3}', b'{"session_id": ""}'])
def test_lines_that_cannot_be_keyed(line: bytes) -> None:
    """They have no session."""
    assert session_key(line) is None


@pytest.mark.durable_broker
def test_publish_counts_and_keys(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """Every good line arrives under its session's key, in order; bad ones are counted."""
    lane = LaneHarness(broker.bootstrap, topic_prefix, tmp_path)
    asyncio.run(create_topics(lane.settings, TOPOLOGY))
    good = [orjson.dumps({"session_id": f"s{n % 7}", "n": n, "pad": "x" * 2_000}) for n in range(3_000)]
    done = asyncio.run(publish(lane.settings, [*good, b"", b"{", "[]"]))
    assert (done.sent, done.refused) == (3_000, 2)
    found: dict[str, list[int]] = {}
    for partition, records in lane.read(lane.settings.topic("events")).items():
        for record in records:
            event = orjson.loads(record.value)
            assert record.key == event["session_id"].encode()
            assert partition_of(record.key, 4) == partition
            found.setdefault(event["session_id"], []).append(event["n"])
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sum(map(len, found.values())) == 3_000


@pytest.mark.durable_broker
def test_publishing_to_nowhere(broker: Broker, topic_prefix: str) -> None:
    """A missing topic and a silent broker are named, with what to do."""
    with pytest.raises(ConfigError, match="no broker answers at 127"):
        asyncio.run(publish(KafkaSettings(bootstrap="127.0.0.1:1"), []))
    with pytest.raises(ConfigError, match="does not exist; run `trustfold topics create`"):
        asyncio.run(publish(KafkaSettings(bootstrap=broker.bootstrap, topic_prefix=topic_prefix), []))
