"""Broker requests that aiokafka does not implement: rights of this user, and the brokers' clock.

Both are read-only. Rights come with the metadata of topics and groups, the time with the state of the metadata quorum:
its leader reports its own last contact, which is now.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.types import (
    Array,
    Boolean,
    Bytes,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

from .topic_metadata import describe

# Kafka's operation codes; each is a bit of the sets in broker answers
OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10}

COORDINATOR_S = 4.0  # Seconds that a cluster may take to find a group's coordinator

_METADATA_TOPIC = "__cluster_metadata"
_TEXT, _COMPACT = String("utf-8"), CompactString("utf-8")


class _GroupsResponse(Response):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", _TEXT),
                ("state", _TEXT),
                ("protocol_type", _TEXT),
                ("protocol", _TEXT),
                (
                    "members",
                    Array(
                        ("member_id", _TEXT),
                        ("client_id", _TEXT),
                        ("client_host", _TEXT),
                        ("metadata", Bytes),
                        ("assignment", Bytes),
                    ),
                ),
                ("operations", Int32),
            ),
        ),
    )


class _GroupsRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = _GroupsResponse
    SCHEMA = Schema(("groups", Array(_TEXT)), ("operations", Boolean))


class _DescribeGroup(Request[_GroupsRequest]):  # type: ignore[misc]
    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([self._group], True)  # noqa: FBT003 - as above


_REPLICAS = CompactArray(
    ("replica_id", Int32), ("end", Int64), ("fetched_ms", Int64), ("caught_up_ms", Int64), ("tags", TaggedFields)
)


class _QuorumResponse(Response):  # type: ignore[misc]
    API_KEY = 55
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    SCHEMA = Schema(
        ("error_code", Int16),
        (
            "topics",
            CompactArray(
                ("topic", _COMPACT),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("high_watermark", Int64),
                        ("voters", _REPLICAS),
                        ("observers", _REPLICAS),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _QuorumRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 55
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _QuorumResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic", _COMPACT),
                ("partitions", CompactArray(("partition", Int32), ("tags", TaggedFields))),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _DescribeQuorum(Request[_QuorumRequest]):  # type: ignore[misc]
    API_KEY = 55

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([(_METADATA_TOPIC, [(0, {})], {})], {})


class BrokerClock(NamedTuple):
    """Reading of a broker's clock."""

    ahead_s: float  # seconds by which it is ahead of ours; negative if behind
    uncertain_s: float  # uncertainty in seconds: half of the request's round trip


class ConsumerGroup(NamedTuple):
    """A consumer group."""

    state: str  # `Stable`, `Empty`, `Dead` if it does not exist, or a rebalance state
    members: list[tuple[str, str]]  # client id and address of each
    # operations of `OPERATIONS` that this user may do; None if the brokers do not report them
    rights: frozenset[str] | None


async def rights_on(admin: Any, topics: Sequence[str]) -> dict[str, frozenset[str] | None]:
    """Return the operations this user may do on topics; empty without Describe, None if not reported.

    A missing topic looks like one without Describe. Brokers before 2.8 do not report operations.
    """
    found = (await describe(admin._client, topics)).topics
    return {name: frozenset() if topic.error else _named(topic.operations) for name, topic in found.items()}


async def hidden_topics(client: Any, topics: Sequence[str]) -> list[str]:
    """Return the topics that this user may not describe, whether they exist or not."""
    if not topics:
        return []
    found = (await describe(client, topics)).topics
    return [name for name, topic in found.items() if topic.error == TopicAuthorizationFailedError.errno]


async def group_of(admin: Any, name: str) -> ConsumerGroup:
    """Return a consumer group, its members, and this user's rights on it.

    Raises:
        KafkaError: the brokers refuse the request.
    """

    async def request() -> Any:
        node = await admin.find_coordinator(name)
        (group,) = (await admin._client.send(node, _DescribeGroup(name))).to_object()["groups"]
        return group

    group = await _of_coordinator(name, request)
    members = [(member["client_id"], member["client_host"].lstrip("/")) for member in group["members"]]
    return ConsumerGroup(group["state"], members, _named(group["operations"] if group["operations"] >= 0 else None))


async def committed_by(admin: Any, name: str) -> dict[TopicPartition, int]:
    """Return all committed offsets of a group; empty if it does not exist.

    Raises:
        KafkaError: the brokers refuse the request.
    """

    async def request() -> Any:
        node = await admin.find_coordinator(name)
        return (await admin._client.send(node, OffsetFetchRequest(name, None))).to_object()

    answer = await _of_coordinator(name, request)
    return {
        TopicPartition(topic["topic"], part["partition"]): part["offset"]
        for topic in answer["topics"]
        for part in topic["partitions"]
        if part["offset"] >= 0
    }


async def _of_coordinator(group: str, request: Callable[[], Awaitable[Any]]) -> Any:
    """Return the answer of a group's coordinator; retries, as a new cluster has none before the first request."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + COORDINATOR_S
    while True:
        try:
            answer = await request()
            if not answer["error_code"]:
                return answer
            raise for_code(answer["error_code"])(f"group {group} cannot be described")
        except (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError):
            if loop.time() > deadline:
                raise
        await asyncio.sleep(0.1)


async def clock_of(admin: Any) -> BrokerClock:
    """Compare the wall clock of the metadata quorum's leader with ours.

    Raises:
        KafkaError: this user lacks Describe on the cluster.
        IncompatibleBrokerVersion: the brokers have no such quorum, or are too old.
        ValueError: the answer contains no time.
    """
    node = admin._client.get_random_node()
    sent_at = time.time()
    answer = (await admin._client.send(node, _DescribeQuorum())).to_object()
    answered_at = time.time()
    if answer["error_code"]:
        raise for_code(answer["error_code"])("the quorum cannot be described")
    quorum = answer["topics"][0]["partitions"][0]
    if quorum["error_code"]:
        raise for_code(quorum["error_code"])("the quorum cannot be described")
    fetched_ms = [voter["fetched_ms"] for voter in quorum["voters"] if voter["replica_id"] == quorum["leader"]]
    if not fetched_ms or fetched_ms[0] <= 0:
        raise ValueError("the leader of the quorum tells no time")
    return BrokerClock(fetched_ms[0] / 1000 - (sent_at + answered_at) / 2, (answered_at - sent_at) / 2)


def _named(operations: int | None) -> frozenset[str] | None:
    if operations is None:
        return None
    return frozenset(name for name, number in OPERATIONS.items() if operations >> number & 1)
