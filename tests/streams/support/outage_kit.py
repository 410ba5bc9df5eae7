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
from lane_harness import Worker, run


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


def administer(bootstrap: str, act: Callable[[Any], Awaitable[Any]]) -> Any:
    """Do something with an admin client; returns what comes of it."""

    async def work() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return await act(admin)
        finally:
            await admin.close()

    return run(work())


DENY, ALLOW = AclPermissionType.DENY, AclPermissionType.ALLOW


def say(permission: AclPermissionType, bootstrap: str, operation: str, kind: str, name: str) -> None:
    """Take one right on a topic or a group from everybody who is not logged in, or leave them no other."""
    resource, user, pattern = ResourceType[kind.upper()], "User:ANONYMOUS", ResourcePatternType.LITERAL
    binding = AclBinding(resource, name, pattern, user, "*", AclOperation[operation], permission)
    client = AdminClient({"bootstrap.servers": bootstrap})  # must outlive what it was asked for
    for done in client.create_acls([binding]).values():
        done.result(60)
