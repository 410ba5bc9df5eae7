"""Several Kafka nodes on this machine that are one cluster: brokers and controllers at once, in little memory."""

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from local_kafka_jars import prepare
from local_kafka_node import ClusterMember, LocalKafka, new_cluster_id
from local_kafka_probe import free_port

HEAP_MB = 256
JAVA_OPTIONS = ("-Xms96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=64m")

# What makes the loss of one node of three harmless, and keeps each small. Times in ms, sizes in bytes.
SETTINGS: Mapping[str, str] = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "log.cleaner.dedupe.buffer.size": str(2 * 1024 * 1024),
    "log.cleaner.io.buffer.size": str(64 * 1024),
    "log.index.size.max.bytes": str(1024 * 1024),
    "num.network.threads": "1",
    "num.io.threads": "2",
    # A follower that was killed is out of step at once, not after 30 s.
    "replica.lag.time.max.ms": "5000",
}


class LocalCluster:
    """Three Kafka nodes; the loss of one costs its clients a few seconds.

    `with LocalCluster() as cluster: connect(cluster.bootstrap)`. `nodes` are LocalKafka objects, to be
    killed and started again one by one; a start waits until the node takes part. Raises KafkaUnavailable as
    LocalKafka does.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        heap_mb: int = HEAP_MB,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._say = say
        ports: list[int] = []
        while len(ports) < 6:
            ports.append(free_port(*ports))
        cluster = new_cluster_id()
        self.nodes = [
            LocalKafka(
                port=port,
                settings={**SETTINGS, **(settings or {})},
                member=ClusterMember(number, ports[3:], cluster),
                heap_mb=heap_mb,
                java_options=JAVA_OPTIONS,
            )
            for number, port in enumerate(ports[:3], 1)
        ]

    @property
    def bootstrap(self) -> str:
        """Where clients connect: every node, with commas."""
        return ",".join(node.bootstrap for node in self.nodes)

    def start(self) -> Self:
        """Start every node that does not run; come back when all take part."""
        prepare(self._say)
        with ThreadPoolExecutor(len(self.nodes)) as pool:  # a node answers when most of them are there
            for started in [pool.submit(node.start) for node in self.nodes]:
                started.result()
        return self

    def close(self) -> None:
        """End every node and delete its data."""
        with contextlib.ExitStack() as closing:
            for node in self.nodes:
                closing.callback(node.close)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
