"""Topic metadata that aiokafka does not request: topic ids, this user's rights, the cluster's id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)


class _TopicUuid:
    """Topic id on the wire: 16 bytes."""

    @classmethod
    def decode(cls, data: Any) -> bytes:
        """Decode it."""
        return bytes(data.read(16))

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """Encode it."""
        return value

    @classmethod
    def repr(cls, value: bytes) -> str:
        """Format it."""
        return value.hex()


class _MetadataResponse(Response):  # type: ignore[misc] # aiokafka has no types; Metadata v10, the first with topic ids: Kafka 2.8
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", _TopicUuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_operations", Int32),
        ("tags", TaggedFields),
    )


class _MetadataRequest(RequestStruct):  # type: ignore[misc] # as above
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _TopicUuid), ("topic", CompactString("utf-8")), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("cluster_operations", Boolean),
        ("topic_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicMetadata(Request[MetadataRequest_v5 | _MetadataRequest]):  # type: ignore[misc] # as above
    """Metadata request for some topics: with ids and rights if the broker supports them, else as aiokafka's."""

    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: Any) -> Any:
        """Return the request in the broker's version."""
        if request_struct_class is _MetadataRequest:
            nobody = bytes(16)
            return _MetadataRequest([(nobody, topic, {}) for topic in self._topics], False, False, True, {})  # noqa: FBT003
        return request_struct_class(self._topics, False)  # noqa: FBT003


class TopicDescription:
    """Description of one topic."""

    __slots__ = ("error", "leaderless", "operations", "partitions", "topic_id")

    def __init__(self, described: Mapping[str, Any]) -> None:
        """Read one topic of a metadata answer."""
        self.error: int = described["error_code"]  # Kafka's error code
        # changes when a topic is recreated; None from old brokers
        self.topic_id: bytes | None = described.get("topic_id")
        self.partitions = len(described["partitions"])  # number of partitions
        # partitions without a leader
        self.leaderless = sorted(part["partition"] for part in described["partitions"] if part["leader"] < 0)
        operations = described.get("operations", -1)
        # bits of this user's rights; None if the broker does not report them
        self.operations: int | None = operations if operations >= 0 else None


class ClusterDescription(NamedTuple):
    """Description of some topics of a cluster."""

    cluster_id: str  # id of the cluster; empty if the brokers do not report it
    hosts: list[tuple[str, int]]  # address and port of each broker
    topics: dict[str, TopicDescription]  # topics by name; all requested ones, whether they exist or not


def described(answer: Any) -> ClusterDescription:
    """Parse the answer to `TopicMetadata`."""
    body = answer.to_object()
    return ClusterDescription(
        body["cluster_id"] or "",
        [(broker["host"], broker["port"]) for broker in body["brokers"]],
        {topic["topic"]: TopicDescription(topic) for topic in body["topics"]},
    )


async def describe(client: Any, topics: Sequence[str]) -> ClusterDescription:
    """Request the topics from a broker through an aiokafka client."""
    return described(await client.send(client.get_random_node(), TopicMetadata(list(topics))))
