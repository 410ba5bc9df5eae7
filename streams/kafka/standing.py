"""How far the workers of a deployment are, at a glance: one question to the group, one to the logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from .broker_queries import committed_by, group_of
from .records import closed
from .settings import KafkaSettings


class Standing(NamedTuple):
    """What was found.

    Attributes:
        behind: records that wait to be folded, of all topics; those that no worker ever committed count from the first.
        members: workers that run.
        ends: records ever written to a topic, by its real name.
    """

    behind: int
    members: int
    ends: dict[str, int]


async def standing_of(settings: KafkaSettings, topics: Sequence[str]) -> Standing:
    """How far the workers are on topics (real names).

    Raises:
        KafkaError: no broker answers, or the group may not be described.
    """
    admin = AIOKafkaAdminClient(**settings.client_arguments())
    consumer = AIOKafkaConsumer(**settings.client_arguments(), enable_auto_commit=False)
    try:
        await admin.start()
        await consumer.start()
        committed = await committed_by(admin, settings.app_id)
        members = (await group_of(admin, settings.app_id)).members
        cluster = await consumer._client.fetch_all_metadata()
        places = [TopicPartition(name, one) for name in topics for one in cluster.partitions_for_topic(name) or ()]
        begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    finally:
        await admin.close()
        await closed(consumer.stop())
    behind = sum(end - max(committed.get(place, 0), begins[place]) for place, end in ends.items())
    written = {name: sum(end for place, end in ends.items() if place.topic == name) for name in topics}
    return Standing(max(behind, 0), len(members), written)
