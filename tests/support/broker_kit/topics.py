"""Topics to test with: under a prefix of their own, with exact partition counts, deleted in the end."""

import asyncio
import re
import time
import uuid
from collections.abc import Mapping

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from .choice import Broker

PATIENCE = 20.0  # seconds until every partition of a new topic has a leader


def new_prefix(test: str) -> str:
    """Give a topic prefix that no other test has; the test's name in it helps who looks at the broker.

    Short enough that 150 characters of a topic name are left of Kafka's 249.
    """
    readable = re.sub(r"[^A-Za-z0-9]+", "-", test).strip("-")[:48]
    return f"{readable}-{uuid.uuid4().hex[:10]}."


async def create_topics(
    broker: Broker, topics: Mapping[str, int], *, config: Mapping[str, Mapping[str, str]] | None = None
) -> None:
    """Create these topics (name: partitions), and come back when they can be written to.

    `config` gives a topic its settings, by the topic's name; a mock broker ignores them. Raises ValueError
    where the broker refuses a topic, TimeoutError where one has no leader after 20 s.
    """
    if broker.make_topic is not None:
        for name, partitions in topics.items():
            broker.make_topic(name, partitions)
        return
    settings = config or {}
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        wanted = [
            NewTopic(name, count, 1, topic_configs=dict(settings.get(name, {}))) for name, count in topics.items()
        ]
        done = await admin.create_topics(wanted)
        refused = [f"{name}: {message or code}" for name, code, message in done.topic_errors if code]
        if refused:
            raise ValueError(f"the broker refuses to create topics: {'; '.join(refused)}")
        await _await_leaders(admin, topics)
    finally:
        await admin.close()


async def delete_topics(broker: Broker, prefix: str) -> None:
    """Delete every topic whose name begins with this prefix; a mock broker keeps them until it ends."""
    if broker.make_topic is not None:
        return
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        if names := [name for name in await admin.list_topics() if name.startswith(prefix)]:
            await admin.delete_topics(names)
    finally:
        await admin.close()


async def _await_leaders(admin: AIOKafkaAdminClient, topics: Mapping[str, int]) -> None:
    """The controller has created the topics; wait until the broker has heard of it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = {
            topic["topic"]: sum(1 for part in topic["partitions"] if not part["error_code"] and part["leader"] >= 0)
            for topic in await admin.describe_topics(list(topics))
            if not topic["error_code"]
        }
        if all(found.get(name) == partitions for name, partitions in topics.items()):
            return
        if time.monotonic() > deadline:
            missing = sorted(name for name, partitions in topics.items() if found.get(name) != partitions)
            raise TimeoutError(f"no leader for every partition of {missing} after {PATIENCE:g} s: is the broker well?")
        await asyncio.sleep(0.02)
