"""Mistakes of publishers that no single record shows: told once, counted, and not invented."""

from types import SimpleNamespace

import orjson
import pytest
from trustfold.cli.clients.kafka_log import StoredRecord
from trustfold.cli.doctor_kafka import publisher_findings
from trustfold.cli.doctor_machine import CheckStatus
from trustfold.streams.kafka.outputs import partition_of
from trustfold.streams.kafka.publisher_faults import KeySamples, mistake_of

PARTITIONS = 6
HOME = partition_of(b"s1", PARTITIONS)
AWAY = (HOME + 1) % PARTITIONS
VALUE = orjson.dumps({"session_id": "s1"})


@pytest.mark.parametrize(
    ("key", "value", "partition", "mistake"),
    [
        (b"s1", VALUE, HOME, None),
        (b"s1", VALUE, AWAY, "other_partitioner"),
        (None, VALUE, HOME, "no_key"),
        (b"", VALUE, HOME, "no_key"),
        (b"agent-7", VALUE, HOME, "other_key"),
        (b"s1", b"no JSON", HOME, None),
        (b"s1", b"[]", HOME, None),
        (b"s1", b'{"session_id": 4}', HOME, None),
        (b"s1", None, HOME, None),
    ],
)
def test_how_an_event_is_keyed(key: bytes | None, value: bytes | None, partition: int, mistake: str | None) -> None:
    """What is no event has its own reason as a dead letter, and says nothing about keys."""
    assert mistake_of(key, value, partition, PARTITIONS) == mistake


class Sampled:
    """Samples of a log, a second apart."""

    def __init__(self) -> None:
        self.now = 0.0
        self.samples = KeySamples(PARTITIONS, clock=lambda: self.now)

    def look(self, key: bytes | None, partition: int = HOME) -> None:
        """Take the next sample."""
        self.now += 1
        self.samples.look("events", partition, SimpleNamespace(key=key, value=VALUE, offset=int(self.now)))


def test_a_mistake_is_logged_once_with_its_place_and_remedy(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted each time, and logged again when it has lasted for long."""
    log = Sampled()
    for _ in range(5):
        log.look(None)
    assert log.samples.mistakes == {"no_key": 5}
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"events/{HOME} at offset 1 has no key")
    assert "key each event by its session_id" in told
    log.now += 600
    log.look(None)
    assert len(caplog.records) == 2


def test_one_partitioner_is_as_good_as_another_and_two_are_a_mistake(caplog: pytest.LogCaptureFixture) -> None:
    """While every event is where the same other one puts it, nothing is wrong."""
    log = Sampled()
    log.look(b"s1", AWAY)
    log.look(b"s1", AWAY)
    assert not log.samples.mistakes
    log.look(b"s1", HOME)
    log.look(b"s1", AWAY)
    assert log.samples.mistakes == {"other_partitioner": 3}
    assert "murmur2_random" in caplog.text


def test_a_full_log_is_sampled_not_read() -> None:
    """Of records that come at once one is looked at."""
    log = Sampled()
    for _ in range(50):
        log.samples.look("events", HOME, SimpleNamespace(key=None, value=VALUE, offset=1))
    assert log.samples.mistakes == {"no_key": 1}


def stored(key: str, partition: int = HOME, at: int = 1_000) -> StoredRecord:
    """A record of the latest events."""
    return StoredRecord(partition, 7, key, VALUE, at, ())


def test_the_doctor_looks_at_the_latest_events() -> None:
    """Wrong keys with an example, clocks that are ahead; one foreign partitioner alone is in order."""
    good, away = [stored("s1")] * 9, stored("s1", AWAY)
    for right in (good, [], [away] * 3):
        (found,) = publisher_findings(right, PARTITIONS, 1_000)
        assert found.status is CheckStatus.OK
    for wrong in (stored(""), stored("agent-7"), away):
        (found,) = publisher_findings([*good, wrong], PARTITIONS, 1_000)
        assert found.status is CheckStatus.FIX
        assert f"of the latest 10 events 1 are keyed wrongly; the one at {wrong.ref}" in found.found
        assert found.advice
    (found,) = publisher_findings([stored("s1", at=10_000)], PARTITIONS, 1_000)
    assert "9 s ahead" in found.found


def test_the_doctor_names_every_mistake() -> None:
    """The most frequent one first."""
    records = [stored("s1"), stored(""), stored("agent-7"), stored("agent-7"), stored("s1", AWAY, at=10_000)]
    found = list(publisher_findings(records, PARTITIONS, 1_000))
    assert [one.status for one in found] == [CheckStatus.FIX] * 4
    said = ("has another key", "has no key", "in another partition than murmur2", "9 s ahead")
    assert all(words in one.found for words, one in zip(said, found, strict=True))
