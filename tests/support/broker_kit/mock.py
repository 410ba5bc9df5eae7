"""librdkafka's mock cluster: Kafka's protocol in this process, with nothing behind it.

Driven by ctypes, because confluent-kafka's own setting (`test.mock.num.brokers`) cannot tell the address. What it lacks
next to a real broker: a log that survives it, compaction, transactions that isolate, creation of topics over the wire,
groups that behave under failure.
"""

import contextlib
import ctypes
import importlib.metadata
from collections.abc import Callable
from typing import Any

PRODUCER = 0  # rd_kafka_type_t; the mock needs a client to live in, of any type


def _load() -> Any:
    """Load the librdkafka that confluent-kafka brings (rdkafka.h, rdkafka_mock.h)."""
    files = importlib.metadata.files("confluent-kafka") or []
    # auditwheel and delocate add a hash: librdkafka-1a2b3c.so.1, librdkafka.1.dylib
    found = next(one for one in files if one.name.startswith("librdkafka") and {".so", ".dylib"} & set(one.suffixes))
    library = ctypes.CDLL(str(found.locate()))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


def start_mock() -> tuple[str, Callable[[], None]]:
    """Start a cluster of one broker; gives its address, and a function that ends it. Raises RuntimeError."""
    library = _load()
    with contextlib.ExitStack() as stack:
        message = ctypes.create_string_buffer(512)
        size, settings = ctypes.c_size_t(len(message)), ctypes.c_void_p(library.rd_kafka_conf_new())
        client = ctypes.c_void_p(library.rd_kafka_new(PRODUCER, settings, message, size))
        if not client:
            raise RuntimeError(f"librdkafka gives no client: {message.value.decode(errors='replace')}")
        stack.callback(library.rd_kafka_destroy, client)
        cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 1))
        if not cluster:
            raise RuntimeError("librdkafka gives no mock cluster")
        stack.callback(library.rd_kafka_mock_cluster_destroy, cluster)
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0)  # as with the local broker
        return library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), stack.pop_all().close
