"""Claims, reading back, and strangers in the changelog, on a log made of lists."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import pytest
from aiokafka import TopicPartition
from trustfold.errors import ConfigError
from trustfold.streams.kafka.changelog import CLAIM_KEY, ChangelogPartitions, PartitionFenced, epoch_headers
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.metrics import LaneMetrics
from trustfold.streams.kafka.store import MemoryStore
from trustfold.streams.kafka.task import PartitionTask

PLACE = TopicPartition("trustfold-session-changelog", 0)


class Log:
    """One changelog partition: a producer and a reader of it."""

    records: ClassVar[list[Any]] = []

    def __init__(self, *_: object) -> None:
        """As changelog_reader."""

    async def __aenter__(self) -> Self:
        """Connect."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""

    @classmethod
    def append(cls, key: bytes, value: bytes | None, epoch: int | None) -> int:
        """Write a record; gives its offset."""
        headers = () if epoch is None else tuple(epoch_headers(epoch))
        cls.records.append(SimpleNamespace(key=key, value=value, headers=headers, offset=len(cls.records)))
        return len(cls.records) - 1

    async def send(self, topic: str, value: bytes, *, key: bytes, partition: int) -> Any:
        """As the producer."""
        assert (topic, partition) == (PLACE.topic, PLACE.partition)
        future = asyncio.get_running_loop().create_future()
        future.set_result(SimpleNamespace(offset=self.append(key, value, None)))
        return future

    async def end_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """As the consumer."""
        return dict.fromkeys(places, len(self.records))

    async def read(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> AsyncIterator[tuple[Any, list[Any], int]]:
        """As read_spans, one record at a time."""
        for place, (start, end) in spans.items():
            for record in self.records[start:end]:
                yield place, [record], record.offset + 1


@pytest.fixture
def changelogs(monkeypatch: pytest.MonkeyPatch) -> ChangelogPartitions:
    """Changelogs on an empty log."""
    monkeypatch.setattr(Log, "records", [])
    monkeypatch.setattr("trustfold.streams.kafka.changelog.changelog_reader", Log)
    monkeypatch.setattr("trustfold.streams.kafka.changelog.read_spans", Log.read)
    return ChangelogPartitions(KafkaSettings(), Log, LaneMetrics())


def recovered(changelogs: ChangelogPartitions, store: MemoryStore | None = None) -> PartitionTask:
    """A new owner of the partition, as recovery makes it."""
    store = store or MemoryStore()

    async def take() -> PartitionTask:
        claims = await changelogs.claim([PLACE])
        stale = await changelogs.read_back({PLACE: store}, claims)
        return PartitionTask(
            stage="session",
            partition=0,
            processor=SimpleNamespace(snapshot=lambda _: []),
            store=store,
            epoch=claims[PLACE],
            log_next=store.next_offset,
            next={},
            rewrite=stale.get(PLACE, set()),
        )

    return asyncio.run(take())


def test_a_new_owner_reads_up_to_its_own_claim(changelogs: ChangelogPartitions) -> None:
    """The claim is the last record read; the next one written stands right behind it."""
    first = recovered(changelogs)
    Log.append(b"a", b"1", first.epoch)
    Log.append(b"b", b"2", first.epoch)
    second = recovered(changelogs)
    assert dict(second.store.items()) == {b"a": b"1", b"b": b"2"}
    assert (second.epoch, second.log_next) == (3, 4)


def test_a_store_that_was_kept_reads_only_the_rest(changelogs: ChangelogPartitions) -> None:
    """A partition that comes back is read on from where its store ends."""
    first = recovered(changelogs)
    Log.append(b"a", b"1", first.epoch)
    second = recovered(changelogs, first.store)
    assert dict(second.store.items()) == {b"a": b"1"}
    assert changelogs._metrics.recovered_records == 3


def test_stale_states_are_found_at_recovery_too(changelogs: ChangelogPartitions) -> None:
    """What a former owner wrote late does not count, and its keys are noted for writing again."""
    first = recovered(changelogs)
    Log.append(b"a", b"1", first.epoch)
    second = recovered(changelogs)
    Log.append(b"a", b"2", second.epoch)
    Log.append(b"a", b"late", first.epoch)
    third = recovered(changelogs)
    assert dict(third.store.items()) == {b"a": b"2"}
    assert third.take_snapshot() == [(b"a", b"2")]


def test_an_idle_owner_notices_a_stale_state(changelogs: ChangelogPartitions) -> None:
    """Without a checkpoint of its own the owner looks at the end of the log, once for each stranger."""
    former = recovered(changelogs)
    owner = recovered(changelogs)
    owner.store.write([(b"a", b"mine")], next_offset=owner.log_next, epoch=owner.epoch)
    Log.append(b"a", b"late", former.epoch)
    asyncio.run(changelogs.check_foreign_writes([owner]))
    assert owner.take_snapshot() == [(b"a", b"mine")]
    asyncio.run(changelogs.check_foreign_writes([owner]))
    assert owner.take_snapshot() == []
    asyncio.run(changelogs.check_foreign_writes([]))


def test_an_idle_owner_notices_a_claim(changelogs: ChangelogPartitions) -> None:
    """A claim behind its own ends the tenure."""
    owner = recovered(changelogs)
    Log.append(CLAIM_KEY, b"{}", None)
    with pytest.raises(PartitionFenced, match="trustfold-session-changelog/0 was claimed"):
        asyncio.run(changelogs.check_foreign_writes([owner]))


def test_records_of_ones_own_are_no_strangers(changelogs: ChangelogPartitions) -> None:
    """A batch whose acknowledgement came without an offset is found to be the owner's."""
    owner = recovered(changelogs)
    Log.append(b"a", b"1", owner.epoch)
    assert asyncio.run(changelogs.inspect(owner, owner.log_next, None)) == 2
    assert not owner.rewrite


def test_a_copy_of_another_changelog_is_refused(changelogs: ChangelogPartitions) -> None:
    """A local store that reaches beyond the log's end belongs to a changelog that is gone."""
    store = MemoryStore()
    store.write([(b"a", b"1")], next_offset=90, epoch=4)
    with pytest.raises(ConfigError, match="deleted and created again"):
        recovered(changelogs, store)
