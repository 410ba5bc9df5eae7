"""The broker watch: what passes is waited for and reported once, what does not pass ends the worker with a remedy."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import errors
from trustfold.errors import ConfigError
from trustfold.streams.kafka.broker_watch import READ, WRITE, BrokerWatch
from trustfold.streams.kafka.faults import describe, is_expected, is_passing
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.topic_metadata import TopicDescription

NAME = "trustfold.events"
ALL = 1 << READ | 1 << WRITE


def topic(**changes: Any) -> dict[str, Any]:
    """A topic as the cluster describes it."""
    leaders = changes.pop("leaders", (1, 1))
    described = {"error_code": 0, "topic_id": b"a" * 16, "operations": ALL}
    return described | {"partitions": [{"partition": n, "leader": at} for n, at in enumerate(leaders)]} | changes


class Cluster:
    """A watch with answers made up; `faults` is what ended the worker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults: list[BaseException] = []
        self.answer: Callable[[], dict[str, Any]] = topic
        self.watch = BrokerWatch(KafkaSettings(), {NAME: (READ, WRITE)}, self.fail)
        monkeypatch.setattr(self.watch, "_ask", self.ask)

    async def fail(self, error: BaseException) -> None:
        """As the engine."""
        self.faults.append(error)

    async def ask(self) -> dict[str, TopicDescription]:
        """State of the cluster."""
        return {NAME: TopicDescription(self.answer())}

    def look(self, answer: Callable[[], dict[str, Any]] | BaseException, times: int = 1) -> None:
        """Look at it so many times."""

        def refuse() -> dict[str, Any]:
            raise answer  # type: ignore[misc]

        self.answer = refuse if isinstance(answer, BaseException) else answer

        async def looks() -> None:
            for _ in range(times):
                await self.watch.look()

        asyncio.run(looks())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster that was well at the first look."""
    made = Cluster(monkeypatch)
    made.look(topic)
    return made


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"error_code": 3, "partitions": []}, "was deleted under the running worker"),
        ({"topic_id": b"b" * 16}, "was deleted and created again"),
        ({"leaders": (1, 1, 1)}, "has 3 partitions now, it had 2"),
        ({"error_code": 29, "partitions": []}, "deny topic trustfold.events"),
        ({"operations": 1 << READ}, "has no Write on topic trustfold.events"),
    ],
)
def test_what_no_waiting_mends_ends_the_worker(cluster: Cluster, change: dict[str, Any], says: str) -> None:
    """It takes two looks that agree; the message names the topic."""
    cluster.look(lambda: topic(**change))
    assert not cluster.faults
    cluster.look(lambda: topic(**change))
    assert says in describe(cluster.faults[0])
    assert NAME in describe(cluster.faults[0])


def test_one_strange_answer_is_no_fault(cluster: Cluster) -> None:
    """A broker that has just started may not know a topic yet."""
    cluster.look(lambda: topic(error_code=3, partitions=[]))
    cluster.look(topic)
    cluster.look(lambda: topic(error_code=3, partitions=[]))
    assert not cluster.faults


def test_an_outage_is_reported_once_and_its_end(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Lost after two looks without an answer; repeated after a minute at the earliest."""
    caplog.set_level(logging.INFO)
    cluster.look(errors.KafkaConnectionError("refused"))
    assert not cluster.watch.waiting
    cluster.look(errors.KafkaConnectionError("refused"), times=5)
    assert cluster.watch.waiting
    cluster.look(topic)
    assert not cluster.watch.waiting
    assert [record.message.partition(" after ")[0] for record in caplog.records] == [
        "no broker of localhost:9092 answers (KafkaConnectionError: refused); the worker waits and goes on by itself",
        "a broker answers again",
    ]
    assert not cluster.faults


def test_a_partition_without_a_leader_is_waited_for(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """It is named; the end of it is reported too."""
    cluster.look(lambda: topic(error_code=0, leaders=(1, -1)), times=3)
    assert cluster.watch.leaderless == {NAME: [1]}
    cluster.look(topic)
    assert not cluster.watch.waiting
    assert [record.message.split(" after ")[0] for record in caplog.records] == [
        f"no leader for {NAME}/1; the worker waits and goes on by itself",
        "every partition has a leader again",
    ]


@pytest.mark.parametrize(
    "error",
    [
        errors.SaslAuthenticationFailed("old"),
        errors.AuthenticationFailedError("no"),
        ssl.SSLCertVerificationError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_refused_credentials_end_the_worker(cluster: Cluster, error: Exception) -> None:
    """Brokers that answer and refuse are no outage."""
    cluster.look(error, times=2)
    assert cluster.faults == [error]
    assert cluster.watch.lost_since is None


def test_a_fault_of_the_watch_itself_is_no_outage(cluster: Cluster) -> None:
    """What is no answer of the network is not mistaken for a broker that is away."""
    cluster.answer = lambda: {"error_code": 0}
    asyncio.run(asyncio.wait_for(cluster.watch.run(), 60))
    assert isinstance(cluster.faults[0], KeyError)


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (errors.KafkaConnectionError(), True),
        (errors.KafkaTimeoutError(), True),
        (errors.NotEnoughReplicasError(), True),
        (errors.OutOfOrderSequenceNumber(), True),
        (errors.UnknownError(), True),
        (errors.KafkaError("Unexpected error during batch delivery"), True),
        (errors.KafkaError("Unexpected error during coordination"), False),
        (errors.TopicAuthorizationFailedError("x"), False),
        (errors.MessageSizeTooLargeError(), False),
        (ConfigError("x"), False),
        (ValueError("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_passes(error: BaseException, passing: bool) -> None:
    """What waiting or new connections mend does not end the worker."""
    assert is_passing(error) is passing


def test_a_fault_says_what_to_do() -> None:
    """Each message ends with a remedy, and only what is unexpected wants a traceback."""
    assert describe(errors.GroupAuthorizationFailedError("app")).endswith("docs/operating.md#rights)")
    assert describe(errors.GroupAuthorizationFailedError("app")).startswith("GroupAuthorizationFailedError: app; give")
    assert "max.message.bytes" in describe(errors.MessageSizeTooLargeError())
    assert "start the worker again" in describe(ValueError("x"))
    assert is_expected(errors.KafkaTimeoutError())
    assert not is_expected(ValueError("x"))


@pytest.mark.parametrize("change", [{"error_code": 3, "partitions": []}, {"topic_id": b"b" * 16}])
def test_a_lost_topic_that_is_only_written_costs_no_state(cluster: Cluster, change: dict[str, Any]) -> None:
    """No position refers to it, so the remedy deletes neither consumer group nor changelogs."""
    cluster.watch._needs = {NAME: (WRITE,)}
    cluster.look(lambda: topic(**change), times=2)
    assert "start the worker again" in describe(cluster.faults[0])
    assert "consumer group" not in describe(cluster.faults[0])
