"""Watch over the brokers and topics of a worker, on a connection of its own.

The clients of the consumer and the producer retry in silence and for ever, whatever the reason. The watch asks for the
metadata of every topic the worker needs, every two seconds, and knows the reason: no broker answers, a partition has no
leader (both pass, the worker waits), a topic is gone, was created anew or has other partitions, the credentials or
rights are gone (none passes, the worker ends). It reports an outage once, then every minute, and its end.
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

from .faults import WorkerFault, is_refusal
from .settings import KafkaSettings
from .topic_metadata import Found, TopicMetadata, described

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
"""Seconds between two looks at the cluster; one small request."""

AGAIN_S = 0.7
"""Seconds until a second look after something was found wrong; only what two looks find is true."""

ANSWER_S = 5.0
"""Longest wait for an answer, and for a connection."""

REPEAT_S = 60.0
"""Seconds after which a trouble that lasts is reported again."""

READ, WRITE = 3, 4
"""Numbers of Kafka's operations in the bits of what a user may do to a topic."""


class BrokerWatch:
    """The watch of one process, by default of a worker.

    Attributes:
        who: what the process is, for its reports.
        answered_at: monotonic time of the last answer of a broker; 0 before the first.
        lost_since: monotonic time since when no broker has answered; None while one does.
        leaderless: partitions without a leader, by topic.
        said: trouble that is being reported, by kind: since when, and when it was reported last.
    """

    who = "worker"

    def __init__(
        self,
        settings: KafkaSettings,
        needs: Mapping[str, tuple[int, ...]],
        fail: Callable[[BaseException], Awaitable[None]],
    ) -> None:
        """Prepare.

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
        self._first: dict[str, Found] = {}
        self._suspicion = ""
        self._answer = asyncio.Event()
        self.answered_at = 0.0
        self.lost_since: float | None = None
        self.leaderless: dict[str, list[int]] = {}
        self.said: dict[str, tuple[float, float]] = {}

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Ids of topics as they were found first; those of an old broker, or not yet seen, are left out."""
        found = {name: self._first[name].topic_id for name in names if name in self._first}
        return {name: made.hex() for name, made in found.items() if made is not None}

    @property
    def waiting(self) -> bool:
        """Whether there is a reason in the cluster for the worker to stand still."""
        return self.lost_since is not None or bool(self.leaderless)

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                soon = await self.look()
                await asyncio.sleep(AGAIN_S if soon else INTERVAL_S)
        except Exception as error:  # noqa: BLE001 - reported by failing the worker
            await self._fail(error)
        finally:
            self._disconnect()

    async def look(self) -> bool:
        """Look at the cluster once; returns whether the next look should come soon."""
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

    # --- asking -----------------------------------------------------------------------------------------------------

    async def _ask(self) -> dict[str, Found]:
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

    # --- judging ----------------------------------------------------------------------------------------------------

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

    async def _compare(self, found: Mapping[str, Found]) -> bool:
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

    def _fault(self, name: str, topic: Found | None, needs: tuple[int, ...]) -> str:
        """Permanent fault of a topic, in words; empty if there is none."""
        if topic is None or topic.error == errors.UnknownTopicOrPartitionError.errno:
            return self.deleted(name)
        if topic.error == errors.TopicAuthorizationFailedError.errno:
            remedy = f"give the {self.who}'s user its rights again (docs/operating.md, Rights)"
            return f"the brokers deny topic {name}: {remedy}"
        if topic.error:
            return ""  # no leader yet, or an answer from a broker that is still starting
        first = self._first.setdefault(name, topic)
        if topic.topic_id is not None and first.topic_id not in {None, topic.topic_id}:
            return self.made_anew(name)
        if topic.partitions != first.partitions and (fault := self.repartitioned(name, first, topic)):
            return fault
        if topic.operations is not None:
            lost = [word for bit, word in ((READ, "Read"), (WRITE, "Write")) if bit in needs and _lost(bit, topic)]
            if lost:
                return (
                    f"the {self.who}'s user has no {' and '.join(lost)} on topic {name}: give the right to it "
                    f"(docs/operating.md, Rights) and start the {self.who} again"
                )
        return ""

    def deleted(self, name: str) -> str:
        """Fault of a topic that is gone, with its remedy."""
        return (
            f"topic {name} was deleted under the running worker: create it with `trustfold topics create`, and as "
            "its positions are gone, delete the consumer group and the changelog topics too, or use another "
            "TRUSTFOLD_APP_ID"
        )

    def made_anew(self, name: str) -> str:
        """Fault of a topic whose id has changed, with its remedy."""
        return (
            f"topic {name} was deleted and created again under the running worker: positions kept in the state "
            "would hide its new records. Delete the consumer group and the changelog topics too, or use another "
            "TRUSTFOLD_APP_ID"
        )

    def repartitioned(self, name: str, before: Found, now: Found) -> str:
        """Fault of a topic that got more partitions, with its remedy; empty where it does no harm."""
        return (
            f"topic {name} has {now.partitions} partitions now, it had {before.partitions}: keys have moved away "
            "from their state. Use a new topic prefix and TRUSTFOLD_APP_ID, and publish the events again"
        )

    def _confirm(self, suspicion: str) -> bool:
        """Whether two looks in a row have found the same."""
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


def _lost(bit: int, topic: Found) -> bool:
    return topic.operations is not None and not topic.operations >> bit & 1
