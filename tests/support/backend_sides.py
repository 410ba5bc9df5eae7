"""Other sides of guard backends for the contract suite: each takes events, folds them, sends states and decisions.

`SIDES` is the table of implementations: a new backend is one class and one line.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import aiokafka.client
import orjson
import pytest
import uvicorn
from aiokafka import AIOKafkaProducer
from broker_kit import delete_topics
from kafka_run import consumer, settings_for
from probing import free_port
from slow_network import SlowNetwork
from trustfold.guard.backends.base import GuardBackend
from trustfold.guard.backends.http import HttpBackend
from trustfold.guard.backends.kafka import KafkaBackend
from trustfold.guard.backends.memory import MemoryBackend
from trustfold.guard.clock import SystemClock
from trustfold.guard.metrics import GuardMetrics
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.serve import address_of, listen
from trustfold.streams.embedded.server import make_app
from trustfold.streams.embedded.sign_in import RoleTokens
from trustfold.streams.embedded.store_views import StoreViews
from trustfold.streams.kafka.topics import create_topics
from waiting import wait_until


class Side(Protocol):
    """Other side of backends. What it starts (threads, sockets) is closed in `close`: a leak fails the suite.

    Attributes:
        remote: it can be away, and other processes use it as well. Only then are `leave` and `come` called.
    """

    remote: bool

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        """Start it; `request` gives other fixtures (`broker`), `folder` is empty and its own."""

    def backend(self, metrics: GuardMetrics, limit: int) -> GuardBackend:
        """Create a backend that is not started."""

    def arrived(self) -> list[bytes]:
        """Events that have arrived, in order."""

    def repeat(self) -> None:
        """Send every decision once more, if this side ever does."""

    def leave(self) -> None:
        """End every connection, and take none."""

    def come(self) -> None:
        """Take connections again."""

    def close(self) -> None:
        """End."""


class Memory:
    """Side of the backend that folds by itself."""

    remote = False

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self.made: list[MemoryBackend] = []

    def backend(self, metrics: GuardMetrics, limit: int) -> GuardBackend:
        """A backend of its own."""
        del limit
        self.made.append(MemoryBackend(SystemClock(), metrics))
        return self.made[-1]

    def arrived(self) -> list[bytes]:
        """What was published, without commands."""
        return [value for one in self.made for value in one.published if b'"session_id"' in value]

    def repeat(self) -> None:
        """Nothing is read twice."""

    leave = come = close = repeat


class Remote:
    """Side that listens at a TCP port of this machine, behind a proxy, which is there or away."""

    remote = True

    def __init__(self, port: int) -> None:
        self.port, self._target = free_port(), port
        self._network: SlowNetwork | None = None
        self.come()

    def repeat(self) -> None:
        """Nothing is sent twice."""

    def leave(self) -> None:
        """End the connections."""
        if self._network is not None:
            self._network.__exit__()
            self._network = None

    def come(self) -> None:
        """Let backends through."""
        if self._network is None:
            self._network = SlowNetwork(self.port, self._target).__enter__()


class Http(Remote):
    """The server of `trustfold up` in this process."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        store = folder / "store.sqlite"
        self._app = make_app(EmbeddedEngine.open(store), store, roles=RoleTokens(local_orders=True))
        self._server = uvicorn.Server(uvicorn.Config(self._app, log_config=None))
        listener = listen("127.0.0.1", 0)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]})
        self._thread.start()
        wait_until(lambda: self._server.started, what="the server")
        self._tail = StoreViews.open(store)
        super().__init__(int(address_of(listener).rpartition(":")[2]))

    def backend(self, metrics: GuardMetrics, limit: int) -> GuardBackend:
        """A client of the server."""
        return HttpBackend(f"http://127.0.0.1:{self.port}", metrics, limit)

    def arrived(self) -> list[bytes]:
        """What the store holds."""
        return [one.value or b"" for one in self._tail.log(0, 10_000) if one.topic == "events"]

    def close(self) -> None:
        """Stop the server."""
        self.leave()
        self._app.state.end_streams()
        self._server.should_exit = True
        self._thread.join(60)
        self._tail.close()


class Kafka(Remote):
    """A broker, and a worker that folds one partition and keeps nothing."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._broker = request.getfixturevalue("broker")
        self._settings = settings_for(self._broker.bootstrap, f"contract-{folder.name}-{free_port()}")
        asyncio.run(create_topics(self._settings))
        self._events: list[bytes] = []
        self._decisions: list[tuple[str, bytes, bytes | None]] = []
        self._to_send: list[tuple[str, bytes, bytes | None]] = []
        self._ready, self._stopped = threading.Event(), threading.Event()
        self._worker = threading.Thread(target=asyncio.run, args=(self._fold(),))
        self._worker.start()
        super().__init__(int(self._broker.bootstrap.rpartition(":")[2]))
        self._restore = _lead_through(self.port)
        assert self._ready.wait(60)

    def backend(self, metrics: GuardMetrics, limit: int) -> GuardBackend:
        """A client of the broker."""
        return KafkaBackend(
            f"127.0.0.1:{self.port}", metrics, limit,
            topic_prefix=self._settings.topic_prefix, client_arguments={"client_id": GUARD},
        )  # fmt: skip

    def arrived(self) -> list[bytes]:
        """What the worker has read."""
        return list(self._events)

    def repeat(self) -> None:
        """Send every decision again, as a worker does after a crash."""
        self._to_send += self._decisions

    def close(self) -> None:
        """Stop the worker, and delete the topics."""
        self.leave()
        self._restore()
        self._stopped.set()
        self._worker.join(60)
        asyncio.run(delete_topics(self._broker, self._settings.topic_prefix))

    async def _fold(self) -> None:
        topology = LocalTopology(RuleSet())
        producer = AIOKafkaProducer(bootstrap_servers=self._broker.bootstrap)
        await producer.start()
        async with consumer(self._settings, ("events", "commands")) as reader:
            self._ready.set()
            while not self._stopped.is_set():
                for partition, records in (await reader.getmany(timeout_ms=20)).items():
                    topic = partition.topic.removeprefix(self._settings.topic_prefix)
                    for record in records:
                        self._take(topology, topic, record.value)
                sending, self._to_send = self._to_send, []
                for name, key, value in sending:
                    await producer.send_and_wait(self._settings.topic(name), value, key=key)
        await producer.stop()

    def _take(self, topology: LocalTopology, topic: str, value: bytes) -> None:
        if topic == "events":
            self._events.append(value)
        for output in topology.feed(topic, (value,)):
            if output.topic in {"state", "nudges", "suggestions"}:
                sent = (output.topic, output.key.encode(), output.value)
                self._to_send.append(sent)
                if output.topic != "state":
                    self._decisions.append(sent)


GUARD = "guard-of-the-contract"


def _lead_through(port: int) -> Callable[[], None]:
    """Lead the connections of guards through a proxy, as brokers give their own address; returns what undoes it."""
    real: Any = aiokafka.client.create_conn

    async def create_conn(host: str, to: int, **options: Any) -> Any:
        return await real(host, port if options.get("client_id") == GUARD else to, **options)

    aiokafka.client.create_conn = create_conn

    def restore() -> None:
        aiokafka.client.create_conn = real

    return restore


SIDES: dict[str, type[Side]] = {"memory": Memory, "http": Http, "kafka": Kafka}
"""Implementations that the contract suite runs over."""


def session_of(event: bytes) -> str:
    """Session of an event in JSON."""
    return str(orjson.loads(event)["session_id"])
