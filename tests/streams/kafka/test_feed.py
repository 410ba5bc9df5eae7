"""Topics followed outside of any group: what is told of topics that are made anew while they are followed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from trustfold.errors import ConfigError
from trustfold.streams.kafka import feed
from trustfold.streams.kafka.feed import ALL, TopicFeed
from trustfold.streams.kafka.kafka_settings import KafkaSettings


class Cluster:
    """Brokers in memory: values of each partition of each topic."""

    def __init__(self, **topics: list[list[bytes]]) -> None:
        self.topics = {f"trustfold.{name}": parts for name, parts in topics.items()}
        self.ids: dict[str, bytes | None] = {name: name.encode() for name in self.topics}
        self.requests = 0
        self.fails: Callable[[int], bool] = lambda _number: False

    def partitions_of(self, topic: str) -> list[dict[str, int]]:
        """As a broker describes them."""
        return [{"partition": number, "leader": 1} for number in range(len(self.topics.get(topic, [])))]

    def to_object(self) -> dict[str, Any]:
        """The answer of a broker about its topics."""
        topics = [
            {"topic": name, "error_code": 0, "topic_id": self.ids[name], "partitions": self.partitions_of(name)}
            for name in self.topics
        ]
        return {"cluster_id": "here", "brokers": [], "topics": topics}

    def client(self, **_arguments: Any) -> Client:
        """A consumer of it."""
        return Client(self)


class Client:
    """What a feed uses of aiokafka's consumer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client = SimpleNamespace(send=self._answer, get_random_node=lambda: 1)
        self._at: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Disconnect."""

    async def _answer(self, _node: int, _question: object) -> Cluster:
        self._cluster.requests += 1
        if self._cluster.fails(self._cluster.requests):
            raise KafkaConnectionError("the connection was closed")
        return self._cluster

    async def beginning_offsets(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Nothing was ever deleted."""
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Of a partition that does not exist no broker tells the end, however long it is waited for."""
        if any(one.partition >= len(self._cluster.topics.get(one.topic, ())) for one in places):
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
    ("changed", "topic_id", "forgets"),
    [
        pytest.param([[b"new"], [], []], b"new", ["state"], id="shorter"),
        pytest.param([[b"new", b"newer"]], b"new", ["state"], id="fewer partitions"),
        pytest.param([[b"new"] * 3, [b"new"], [b"new"]], b"new", ["state"], id="longer"),
        pytest.param([[b"new"], [], []], None, ["state"], id="shorter, of brokers without ids"),
        pytest.param([[b"old", b"older"], [b"old"], [b"old"], [b"new"]], b"id", [], id="more partitions"),
    ],
)
def test_a_topic_that_changes_while_it_is_followed(
    changed: list[list[bytes]], topic_id: bytes | None, forgets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made anew it is forgotten and read anew, added partitions are read too; other topics go on where they were."""
    cluster = Cluster(state=[[b"old", b"older"], [b"old"], [b"old"]], nudges=[[b"nudge"]])
    cluster.ids["trustfold.state"] = b"id" if topic_id is not None else None
    monkeypatch.setattr(feed, "AIOKafkaConsumer", cluster.client)
    for name in ("WATCH_S", "FIRST_PAUSE_S", "LAST_PAUSE_S"):
        monkeypatch.setattr(feed, name, 0.001)
    told: list[tuple[str, bytes | None]] = []
    forgotten: list[str] = []
    settings = KafkaSettings()
    known = sorted([("nudges", b"nudge"), *(("state", value) for part in changed for value in part)])

    def forget(topic: str) -> None:
        forgotten.append(topic)
        told[:] = [one for one in told if one[0] != topic]

    async def until(done: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not done():  # noqa: ASYNC110 - the feed rings no bell
                await asyncio.sleep(0.001)

    async def follow() -> None:
        followed = TopicFeed(
            settings,
            {"state": ALL, "nudges": 10},
            lambda records: told.extend((one.topic, one.value) for one in records),
            forget,
            lambda: None,
        )
        following = asyncio.create_task(followed.run())
        try:
            await until(lambda: followed.complete and len(told) == 5)
            cluster.topics["trustfold.state"], cluster.ids["trustfold.state"] = changed, topic_id
            await until(lambda: forgotten == forgets and not followed.fault and sorted(told) == known)
        finally:
            following.cancel()
            await asyncio.wait([following])

    asyncio.run(follow())


def test_a_fault_of_ours_shows_and_reading_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever takes the records fails once: the fault is on the page, then reading goes on."""
    cluster = Cluster(state=[[b"old"]])
    monkeypatch.setattr(feed, "AIOKafkaConsumer", cluster.client)
    monkeypatch.setattr(feed, "FIRST_PAUSE_S", 0.001)
    faults: list[str] = []

    def fail_once(_records: object) -> None:
        if not faults:
            raise ValueError("a fault of ours")

    async def follow() -> None:
        followed = TopicFeed(
            KafkaSettings(), {"state": ALL}, fail_once, lambda _: None, lambda: faults.append(followed.fault)
        )
        following = asyncio.create_task(followed.run())
        try:
            async with asyncio.timeout(60):
                while not followed.complete:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.001)
        finally:
            following.cancel()
            await asyncio.wait([following])

    asyncio.run(follow())
    assert "a fault of ours" in faults[0]
    assert faults[-1] == ""
    assert "they are tried again" in caplog.text


@pytest.mark.parametrize(
    ("fails", "outage"),
    [
        pytest.param(lambda number: number % 2 == 0, False, id="a connection ended for its age"),
        pytest.param(lambda number: number > 1, True, id="no connection holds"),
    ],
)
def test_an_ended_connection_is_no_outage(
    fails: Callable[[int], bool], outage: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers end connections that are old or idle: the next request makes a new one, and orders go on."""
    cluster = Cluster(state=[[b"old"]])
    cluster.fails = fails
    monkeypatch.setattr(feed, "AIOKafkaConsumer", cluster.client)
    for name in ("WATCH_S", "FIRST_PAUSE_S", "LAST_PAUSE_S"):
        monkeypatch.setattr(feed, name, 0.001)
    faults: list[str] = []

    async def unreachable(_settings: KafkaSettings) -> ConfigError:
        return ConfigError("no broker answers")

    monkeypatch.setattr(feed, "unreachable", unreachable)

    async def follow() -> None:
        followed = TopicFeed(
            KafkaSettings(), {"state": ALL}, lambda _: None, lambda _: None, lambda: faults.append(followed.fault)
        )
        following = asyncio.create_task(followed.run())
        try:
            async with asyncio.timeout(60):
                while cluster.requests < 9:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.001)
        finally:
            following.cancel()
            await asyncio.wait([following])

    asyncio.run(follow())
    assert ("no broker answers" in faults) is outage
