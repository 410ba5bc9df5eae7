"""What the tests of outages share: changing topics and rights, and the last words of a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from lane_harness import LaneHarness, Worker, run


def last_line(worker: Worker) -> str:
    """The last line of a worker's log."""
    return worker.text().strip().rpartition("\n")[2]


def said_first(worker: Worker, words: str) -> int:
    """How often a worker's log says something for the first time; a wait that lasts is reported again every minute."""
    return sum(words in line and not line.endswith("s now)") for line in worker.text().splitlines())


def ends_in_time(worker: Worker) -> None:
    """SIGTERM ends a worker in order."""
    assert worker.stop() == 0, worker.text()[-3000:]
    assert "Traceback" not in worker.text(), worker.text()[-3000:]


def administer(lane: LaneHarness, act: Callable[[Any], Awaitable[Any]]) -> None:
    """Do something with an admin client."""

    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=lane.settings.servers)
        await admin.start()
        try:
            await act(admin)
        finally:
            await admin.close()

    run(work())


def deny(bootstrap: str, kind: str, name: str) -> None:
    """Take the rights on a topic (Write) or a group (Read) from everybody who is not logged in."""
    resource, operation = {
        "topic": (ResourceType.TOPIC, AclOperation.WRITE),
        "group": (ResourceType.GROUP, AclOperation.READ),
    }[kind]
    user, pattern = "User:ANONYMOUS", ResourcePatternType.LITERAL
    binding = AclBinding(resource, name, pattern, user, "*", operation, AclPermissionType.DENY)
    client = AdminClient({"bootstrap.servers": bootstrap})  # must outlive what it was asked for
    for done in client.create_acls([binding]).values():
        done.result(60)
