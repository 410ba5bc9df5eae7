"""librdkafka's mock cluster as the last resort: Kafka's protocol in this process, with nothing behind it.

Driven by ctypes, because confluent-kafka's own setting (`test.mock.num.brokers`) can neither tell the address
nor create a topic with a given number of partitions. What it lacks next to a real broker: a log that survives
it, compaction, transactions that isolate, creation of topics over the wire, groups that behave under failure.
"""

import contextlib
import ctypes
import importlib.metadata
from typing import Any

from .choice import Broker, Unavailable

PRODUCER = 0  # rd_kafka_type_t; the mock needs a client to live in, of any type
REBALANCE_DELAY_MS = 0  # a group forms at once, as with the local broker
OK = 0


def library() -> str:
    """Give the path of the librdkafka that confluent-kafka brings. Raises Unavailable."""
    try:
        files = importlib.metadata.files("confluent-kafka") or []
    except importlib.metadata.PackageNotFoundError:
        raise Unavailable("confluent-kafka is not installed: pip install confluent-kafka") from None
    for file in files:
        # auditwheel and delocate add a hash: librdkafka-1a2b3c.so.1, librdkafka.1.dylib
        if file.name.startswith("librdkafka") and (".so" in file.name or file.name.endswith(".dylib")):
            return str(file.locate())
    raise Unavailable("confluent-kafka was built without a librdkafka of its own: install its binary wheel")


def load() -> Any:
    """Load librdkafka and declare the calls we use (rdkafka.h, rdkafka_mock.h). Raises Unavailable."""
    pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_new": (pointer, [integer, pointer, text, ctypes.c_size_t]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, integer]),
        "rd_kafka_mock_cluster_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_topic_create": (integer, [pointer, text, integer, integer]),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [pointer, ctypes.c_int32]),
    }
    try:
        loaded = ctypes.CDLL(library())
        for name, (result, arguments) in signatures.items():
            call = getattr(loaded, name)
            call.restype, call.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise Unavailable(f"this librdkafka has no mock cluster ({error}): pip install -U confluent-kafka") from error
    return loaded


class Mock:
    """One mock broker."""

    kind = "mock"
    durable = False

    def missing(self) -> str | None:
        """Look for librdkafka."""
        with contextlib.suppress(Unavailable):
            library()
            return None
        return "confluent-kafka with its own librdkafka is not installed: pip install confluent-kafka"

    def open(self) -> Broker:
        """Start a cluster of one in this process."""
        librdkafka = load()
        message = ctypes.create_string_buffer(512)
        client = librdkafka.rd_kafka_new(PRODUCER, librdkafka.rd_kafka_conf_new(), message, len(message))
        if not client:
            raise Unavailable(f"librdkafka gives no client: {message.value.decode(errors='replace')}")
        cluster = librdkafka.rd_kafka_mock_cluster_new(client, 1)
        if not cluster:
            librdkafka.rd_kafka_destroy(client)
            raise Unavailable("librdkafka gives no mock cluster: pip install -U confluent-kafka")
        librdkafka.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, REBALANCE_DELAY_MS)
        bootstrap = librdkafka.rd_kafka_mock_cluster_bootstraps(cluster).decode()
        alive = [True]

        def make_topic(name: str, partitions: int) -> None:
            error = librdkafka.rd_kafka_mock_topic_create(cluster, name.encode(), partitions, 1)
            if error != OK:
                raise ValueError(f"the mock cannot create topic {name!r} (librdkafka error {error}): does it exist?")

        def close() -> None:
            if alive.pop() if alive else False:
                librdkafka.rd_kafka_mock_cluster_destroy(cluster)
                librdkafka.rd_kafka_destroy(client)

        return Broker(
            bootstrap,
            self.kind,
            f"librdkafka's mock at {bootstrap}: keeps nothing, tests marked durable_broker are skipped",
            durable=False,
            close=close,
            make_topic=make_topic,
        )
