"""Monitor of a worker's brokers and topics, on its own connection.

The consumer's and the producer's clients retry silently and without end, whatever the reason. This monitor requests the
metadata of every needed topic every two seconds and finds the reason: no broker answers, or a partition has no leader
(temporary, the worker waits); a topic was deleted, recreated or repartitioned, or credentials or rights were revoked
(permanent, the worker ends). It reports an outage once, then every minute, and its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aiokafka import errors
from aiokafka.conn import AIOKafkaConnection, collect_hosts, create_conn

from ...errors import DOCS
from .faults import WorkerFault, is_refusal
from .kafka_settings import KafkaSettings
from .topic_metadata import TopicDescription, TopicMetadata, described

log = logging.getLogger(__name__)

INTERVAL_S = 2.0  # Seconds between two checks of the cluster; one small request each
AGAIN_S = 0.7  # Seconds until a fault is checked again; only faults found twice count
ANSWER_S = 5.0  # Timeout in seconds of an answer, and of a connection
REPEAT_S = 60.0  # Seconds after which a lasting fault is reported again
READ, WRITE = 3, 4  # Bits of Kafka's operations in a user's rights on a topic


class BrokerWatch:
    """Broker monitor of one process, by default of a worker.

    Attributes:
        who: kind of the process, for reports.
        answered_at: monotonic time of the last answer of a broker; 0 before the first.
        lost_since: monotonic time of the start of an outage; None while a broker answers.
        leaderless: partitions without a leader, by topic.
        said: faults being reported, by kind: start, and time of the last report.
    """

    who = "worker"

    def __init__(
        self,
        settings: KafkaSettings,
        needs: Mapping[str, tuple[int, ...]],
        fail: Callable[[BaseException], Awaitable[None]],
    ) -> None:
        """Create a monitor.

        Args:
            settings: addresses and credentials.
            needs: operations (READ, WRITE) the process needs, by real topic name.
            fail: ends the process.
        """
        self._settings = settings
        self._needs = needs
        self._fail = fail
        self._connection: AIOKafkaConnection | None = None
        self._hosts: list[tuple[str, int]] = []
        self._first: dict[str, TopicDescription] = {}
        self._suspicion = ""
        self._answer = asyncio.Event()
        self.answered_at = 0.0
        self.lost_since: float | None = None
        self.leaderless: dict[str, list[int]] = {}
        self.said: dict[str, tuple[float, float]] = {}

    def expect(self, topics: Mapping[str, TopicDescription]) -> None:
        """Compare with these descriptions: a topic may be created again between them and the first check."""
        self._first.update(topics)

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return topic ids as first seen; without those of old brokers or unseen topics."""
        found = {name: self._first[name].topic_id for name in names if name in self._first}
        return {name: made.hex() for name, made in found.items() if made is not None}

    @property
    def waiting(self) -> bool:
        """Whether a fault of the cluster makes the worker wait."""
        return self.lost_since is not None or bool(self.leaderless)

    async def run(self) -> None:
        """Check until cancelled."""
        try:
            while True:
                soon = await self.look()
                await asyncio.sleep(AGAIN_S if soon else INTERVAL_S)
        except Exception as error:  # noqa: BLE001 - reported by failing the worker
            await self._fail(error)
        finally:
            self._disconnect()

    async def look(self) -> bool:
        """Check the cluster once; return whether the next check should come soon."""
        try:
            found = await asyncio.wait_for(self._ask(), 2 * ANSWER_S)
        except (errors.KafkaError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self._disconnect()
            return await self._missed(error)
        self._answered()
        return await self._compare(found)

    async def answer(self) -> None:
        """Wait until a broker answers."""
        await self._answer.wait()

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _ask(self) -> dict[str, TopicDescription]:
        if self._connection is None or not self._connection.connected():
            self._connection = await self._connect()
        answer = await asyncio.wait_for(self._connection.send(TopicMetadata(list(self._needs))), ANSWER_S)
        cluster = described(answer)
        self._hosts = cluster.hosts
        return cluster.topics

    async def _connect(self) -> Any:
        last: Exception = errors.KafkaConnectionError("no address")
        arguments = self._settings.client_arguments()
        hosts = [(host, port) for host, port, _ in collect_hosts(arguments.pop("bootstrap_servers"))]
        for host, port in dict.fromkeys([*self._hosts, *hosts]):
            try:
                return await asyncio.wait_for(
                    create_conn(host, port, request_timeout_ms=int(ANSWER_S * 1000), **arguments), ANSWER_S
                )
            except (errors.KafkaError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                last = error
                if is_refusal(error):
                    break
        raise last

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    # --- evaluation -------------------------------------------------------------------------------------------------

    async def _missed(self, error: Exception) -> bool:
        if is_refusal(error) or isinstance(error, ssl.SSLCertVerificationError):
            if self._confirm(f"refused {type(error).__name__}"):
                await self._fail(error)
            return True
        first = self.lost_since is None
        if not first or self._confirm("lost"):
            self._answer.clear()
            self.lost_since = self.lost_since or time.monotonic()
            reason = " ".join(str(error).split()) or type(error).__name__
            self._report(
                "lost",
                f"no broker of {self._settings.bootstrap} answers ({reason}); the {self.who} waits and goes on by "
                "itself",
            )
        return True

    def _answered(self) -> None:
        self.answered_at = time.monotonic()
        self.lost_since = None
        self._answer.set()
        self._resolve("lost", "a broker answers again")

    async def _compare(self, found: Mapping[str, TopicDescription]) -> bool:
        self.leaderless = {}
        for name, needs in self._needs.items():
            topic = found.get(name)
            fault = self._fault(name, topic, needs)
            if fault:
                if self._confirm(fault):
                    await self._fail(WorkerFault(fault))
                return True
            if topic is not None and topic.leaderless:
                self.leaderless[name] = topic.leaderless
        self._suspicion = ""
        if self.leaderless:
            places = ", ".join(f"{name}/{','.join(map(str, parts))}" for name, parts in self.leaderless.items())
            self._report("leader", f"no leader for {places}; the {self.who} waits and goes on by itself")
        else:
            self._resolve("leader", "every partition has a leader again")
        return bool(self.leaderless)

    def _fault(self, name: str, topic: TopicDescription | None, needs: tuple[int, ...]) -> str:
        """Return the permanent fault of a topic in words; empty without one."""
        if topic is None or topic.error == errors.UnknownTopicOrPartitionError.errno:
            return self.deleted(name) if READ in needs else _lost_output(name, "deleted")
        if topic.error == errors.TopicAuthorizationFailedError.errno:
            remedy = f"give the {self.who}'s user its rights again ({DOCS}/operating.md#rights)"
            return f"the brokers deny topic {name}: {remedy}"
        if topic.error:
            return ""  # no leader yet, or an answer from a broker that is still starting
        first = self._first.setdefault(name, topic)
        if topic.topic_id is not None and first.topic_id not in {None, topic.topic_id}:
            return self.made_anew(name) if READ in needs else _lost_output(name, "deleted and created again")
        if topic.partitions != first.partitions and (fault := self.repartitioned(name, first, topic)):
            return fault
        if topic.operations is not None:
            lost = [word for bit, word in ((READ, "Read"), (WRITE, "Write")) if bit in needs and _lost(bit, topic)]
            if lost:
                return (
                    f"the {self.who}'s user has no {' and '.join(lost)} on topic {name}: give the right to it "
                    f"({DOCS}/operating.md#rights) and start the {self.who} again"
                )
        return ""

    def deleted(self, name: str) -> str:
        """Return the fault of a deleted topic, with its remedy."""
        return (
            f"topic {name} was deleted under the running worker: create it with `trustfold topics create`, and as "
            "its positions are gone, delete the consumer group and the changelog topics too, or use another "
            "TRUSTFOLD_APP_ID"
        )

    def made_anew(self, name: str) -> str:
        """Return the fault of a topic whose id has changed, with its remedy."""
        return (
            f"topic {name} was deleted and created again under the running worker: positions kept in the state "
            "would hide its new records. Delete the consumer group and the changelog topics too, or use another "
            "TRUSTFOLD_APP_ID"
        )

    def repartitioned(self, name: str, before: TopicDescription, now: TopicDescription) -> str:
        """Return the fault of a topic with more partitions, with its remedy; empty if it is harmless."""
        return (
            f"topic {name} has {now.partitions} partitions now, it had {before.partitions}: keys have moved away "
            "from their state. Use a new topic prefix and TRUSTFOLD_APP_ID, and publish the events again"
        )

    def _confirm(self, suspicion: str) -> bool:
        """Whether two consecutive checks found the same fault."""
        if self._suspicion == suspicion:
            return True
        self._suspicion = suspicion
        return False

    # --- reporting --------------------------------------------------------------------------------------------------

    def _report(self, kind: str, text: str) -> None:
        now = time.monotonic()
        since, last = self.said.get(kind, (now, 0.0))
        if now - last >= REPEAT_S or not last:
            log.warning("%s%s", text, f" (for {now - since:.0f} s now)" if last else "")
            self.said[kind] = since, now

    def _resolve(self, kind: str, text: str) -> None:
        since, _ = self.said.pop(kind, (0.0, 0.0))
        if since:
            log.warning("%s after %.0f s", text, time.monotonic() - since)


def _lost_output(name: str, what: str) -> str:
    """Fault of a topic that is only written, with its remedy: no position refers to it."""
    return (
        f"topic {name} was {what} under the running worker, and its records are gone: start the worker again, after "
        "`trustfold topics create` if the topic is missing"
    )


def _lost(bit: int, topic: TopicDescription) -> bool:
    return topic.operations is not None and not topic.operations >> bit & 1
