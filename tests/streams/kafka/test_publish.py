"""Publishing lines: keyed, counted, refused with a reason."""

import asyncio
import re
import time
from pathlib import Path

import orjson
import pytest
from broker_kit import Broker
from click.testing import CliRunner
from counting import TOPOLOGY
from lane_harness import LaneHarness
from trustfold.cli.publish import publish as cli_publish
from trustfold.errors import ConfigError, EventRejected
from trustfold.schemas.codec import rfc3339
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.outputs import partition_of
from trustfold.streams.kafka.publish import IN_FLIGHT, RecordTimes, publish, record_key
from trustfold.streams.kafka.topics import TimeLimits, create_topics, find_differences, keep_events, time_limits


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


DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def timed(at_ms: int) -> bytes:
    """An event of a session at a time."""
    return orjson.dumps({"session_id": "s1", "time": rfc3339(at_ms)})


def test_a_record_bears_the_time_of_its_event() -> None:
    """A line without a readable time becomes a dead letter, and bears the present."""
    times = RecordTimes(TimeLimits("events", 7 * DAY_MS))
    assert times.of(timed(NOW_MS - DAY_MS), 1, NOW_MS) == NOW_MS - DAY_MS
    for line in (b"{}", b'{"time": 3}', b'{"time": "yesterday"}', b'{"time": "2026-13-01T00:00:00Z"}'):
        assert times.of(line, 1, NOW_MS) == NOW_MS


def test_events_that_a_topic_would_not_keep_are_refused_before_they_are_lost() -> None:
    """The message names the line, the topic's limit, and what to do; a topic that keeps all takes all."""
    times = RecordTimes(TimeLimits("events", 7 * DAY_MS, 3_600_000))
    with pytest.raises(
        ConfigError, match=r"line 3 is of .* keeps records for 7 days.*`trustfold topics keep --for-ever`"
    ):
        times.of(timed(NOW_MS - 8 * DAY_MS), 3, NOW_MS)
    with pytest.raises(ConfigError, match=r"line 1,000 is of .*more than 1 hour ahead .*publish with --now"):
        times.of(timed(NOW_MS + 2 * 3_600_000), 1_000, NOW_MS)
    kept = RecordTimes(TimeLimits("events"))
    assert kept.of(timed(NOW_MS - 8_000 * DAY_MS), 1, NOW_MS) == NOW_MS - 8_000 * DAY_MS


@pytest.mark.durable_broker
def test_old_events_are_published_when_the_topic_keeps_them(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """Until then nothing of them is written; the topic's other settings stay, and the records bear the old times."""
    lane = LaneHarness(broker.bootstrap, topic_prefix, tmp_path)
    asyncio.run(create_topics(lane.settings, TOPOLOGY))
    name = lane.settings.topic("events")
    old = int(time.time() * 1000) - 400 * DAY_MS
    with pytest.raises(ConfigError, match="keeps records for 7 days"):
        asyncio.run(publish(lane.settings, [timed(old)], event_times=True))
    assert not any(lane.read(name).values())
    assert asyncio.run(keep_events(lane.settings, -1)) == name
    assert asyncio.run(time_limits(lane.settings, name)).kept_ms == -1
    assert not [found for found in asyncio.run(find_differences(lane.settings, TOPOLOGY)) if not found.chosen]
    assert asyncio.run(publish(lane.settings, [timed(old), timed(old + 5)], event_times=True)).sent == 2
    assert [record.timestamp for records in lane.read(name).values() for record in records] == [old, old + 5]


@pytest.mark.durable_broker
def test_a_publication_that_breaks_off_says_how_far_it_came(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """So that who goes on knows that a part is there already."""
    lane = LaneHarness(broker.bootstrap, topic_prefix, tmp_path)
    asyncio.run(create_topics(lane.settings, TOPOLOGY))
    now = int(time.time() * 1000)
    large = orjson.dumps(orjson.loads(timed(now)) | {"text": "x" * 400_000})
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"\n".join([*[large] * (IN_FLIGHT + 4), timed(now - 400 * DAY_MS)]))
    done = CliRunner().invoke(
        cli_publish, [str(file), "--bootstrap", broker.bootstrap], env={"TRUSTFOLD_TOPIC_PREFIX": topic_prefix}
    )
    assert isinstance(done.exception, ConfigError)
    assert re.search(r"\d+ were published before this failure", done.stderr)


@pytest.mark.durable_broker
def test_publishing_to_nowhere(broker: Broker, topic_prefix: str) -> None:
    """A missing topic and a silent broker are named, with what to do."""
    with pytest.raises(ConfigError, match="no broker answers at 127"):
        asyncio.run(publish(KafkaSettings(bootstrap="127.0.0.1:1"), []))
    with pytest.raises(ConfigError, match="does not exist; run `trustfold topics create`"):
        asyncio.run(publish(KafkaSettings(bootstrap=broker.bootstrap, topic_prefix=topic_prefix), []))
