"""What the tests of outages share: pausing a broker, changing topics, asking a worker for its health."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
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


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of a worker's endpoint; 0 while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def status(port: int, path: str) -> tuple[int, str]:
    """Status code and the word for it."""
    code, body = get(port, path)
    return code, json.loads(body)["status"] if body else ""


def last_line(worker: Worker) -> str:
    """The last line of a worker's log."""
    return worker.text().strip().rpartition("\n")[2]


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
        done.result(10)
