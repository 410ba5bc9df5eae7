"""Topics followed outside of any group: what is told of topics that are made anew while they are followed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from trustfold.streams.kafka import feed
from trustfold.streams.kafka.feed import ALL, Feed
from trustfold.streams.kafka.settings import KafkaSettings


class Cluster:
    """Brokers in memory: values of each partition of each topic."""

    def __init__(self, **topics: list[list[bytes]]) -> None:
        self.topics = {f"trustfold.{name}": parts for name, parts in topics.items()}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """As aiokafka's metadata says it."""
        return set(range(len(self.topics[topic]))) if topic in self.topics else None

    def client(self, **_arguments: Any) -> Client:
        """A consumer of it."""
        return Client(self)


class Client:
    """What a feed uses of aiokafka's consumer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client = SimpleNamespace(fetch_all_metadata=self._metadata)
        self._at: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Disconnect."""

    async def _metadata(self) -> Cluster:
        return self._cluster

    async def beginning_offsets(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Nothing was ever deleted."""
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Of a partition that does not exist no broker tells the end, however long it is waited for."""
        if any(one.partition not in (self._cluster.partitions_for_topic(one.topic) or ()) for one in places):
            raise TimeoutError
        return {one: len(self._cluster.topics[one.topic][one.partition]) for one in places}

    def assign(self, places: Collection[TopicPartition]) -> None:
        """Read these."""
        self._at = dict.fromkeys(places, 0)

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go on there."""
        self._at[place] = offset

    async def position(self, place: TopicPartition) -> int:
        """Next offset."""
        return self._at[place]

    async def getmany(self, **_arguments: Any) -> dict[TopicPartition, list[Any]]:
        """What is there and was not read."""
        await asyncio.sleep(0)
        found = {}
        for place, at in self._at.items():
            parts = self._cluster.topics.get(place.topic, [])
            if values := (parts[place.partition] if place.partition < len(parts) else [])[at:]:
                self._at[place] += len(values)
                found[place] = [
                    SimpleNamespace(key=b"k", value=value, offset=at + number, timestamp=1)
                    for number, value in enumerate(values)
                ]
        return found


@pytest.mark.parametrize(
    ("changed", "forgets", "tells"),
    [
        pytest.param([[b"new"], [], []], ["state"], [b"new"], id="shorter"),
        pytest.param([[b"new", b"newer"]], ["state"], [b"new", b"newer"], id="fewer partitions"),
        pytest.param([[b"old", b"older"], [b"old"], [b"old"], [b"new"]], [], [b"new"], id="more partitions"),
    ],
)
def test_a_topic_that_changes_while_it_is_followed(
    changed: list[list[bytes]], forgets: list[str], tells: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made anew it is forgotten and read anew, added partitions are read too; other topics go on where they were."""
    cluster = Cluster(state=[[b"old", b"older"], [b"old"], [b"old"]], nudges=[[b"nudge"]])
    monkeypatch.setattr(feed, "AIOKafkaConsumer", cluster.client)
    for name in ("WATCH_S", "FIRST_PAUSE_S", "LAST_PAUSE_S"):
        monkeypatch.setattr(feed, name, 0.001)
    told: list[tuple[str, bytes | None]] = []
    forgotten: list[str] = []
    settings = KafkaSettings()

    async def until(done: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not done():  # noqa: ASYNC110 - the feed rings no bell
                await asyncio.sleep(0.001)

    async def follow() -> None:
        followed = Feed(
            settings,
            {"state": ALL, "nudges": 10},
            lambda records: told.extend((one.topic, one.value) for one in records),
            forgotten.append,
            lambda: None,
        )
        following = asyncio.create_task(followed.run())
        try:
            await until(lambda: followed.complete and len(told) == 5)
            cluster.topics["trustfold.state"] = changed
            await until(lambda: ("state", b"new") in told and not followed.fault)
        finally:
            following.cancel()
            await asyncio.wait([following])

    asyncio.run(follow())
    assert forgotten == forgets
    assert sorted(told[5:]) == [("state", value) for value in tells]
