"""Publishing lines: keyed, counted, refused with a reason."""

import asyncio
from pathlib import Path

import orjson
import pytest
from broker_kit import Broker
from counting import TOPOLOGY
from lane_harness import LaneHarness
from trustfold.errors import ConfigError, EventRejected
from trustfold.streams.kafka.outputs import partition_of
from trustfold.streams.kafka.publish import publish, record_key
from trustfold.streams.kafka.settings import KafkaSettings
from trustfold.streams.kafka.topics import create_topics


@pytest.mark.parametrize(
    ("topic", "line", "reason"),
    [
        ("events", b"{", "not JSON"),
        ("events", b"[]", "not a JSON object"),
        ("events", b"{}", "session_id must be a non-empty string"),
        ("events", b'{"session_id": 3}', "session_id must be a non-empty string"),
        ("events", b'{"session_id": ""}', "session_id must be a non-empty string"),
        ("commands", b"{", "not_json"),
        ("commands", b'{"session_id": "s1"}', "the field `type` is required"),
    ],
)
def test_lines_that_cannot_be_keyed(topic: str, line: bytes, reason: str) -> None:
    """Each has its reason."""
    with pytest.raises((ValueError, EventRejected), match=reason):
        record_key(topic, line)


def test_a_command_has_the_key_of_its_scope() -> None:
    """A command names no session."""
    made = {"schema_version": "1.0", "id": "c1", "type": "trust.reset", "time": "2026-01-01T00:00:00Z"}
    line = orjson.dumps(made | {"key": "send_mail|to=a", "issued_by": "ana", "workspace_id": "w1"})
    assert record_key("commands", line) == b"w1\x1ftool:send_mail"


@pytest.mark.durable_broker
def test_publish_counts_and_keys(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """Every good line arrives under its session's key, in order; bad ones are counted with their line number."""
    lane = LaneHarness(broker.bootstrap, topic_prefix, tmp_path)
    asyncio.run(create_topics(lane.settings, TOPOLOGY))
    good = [orjson.dumps({"session_id": f"s{n % 7}", "n": n, "pad": "x" * 2_000}) for n in range(3_000)]
    done = asyncio.run(publish(lane.settings, [*good, b"", b"{", "[]"]))
    assert (done.sent, done.refused) == (3_000, 2)
    assert [number for number, _ in done.reasons] == [3_002, 3_003]
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
