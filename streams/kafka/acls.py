"""Access control lists for Kafka as commands for `kafka-acls.sh`.

They follow the catalogue: publishers write `events` and read decisions; only operators write `commands` and `settings`;
workers, recorders and dashboards get what they need. See docs/operating.md, Rights.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from ...schemas.topics import TOPICS, TopicRole
from .kafka_settings import KafkaSettings
from .topics import plan


class RolePrincipals(NamedTuple):
    """Principals of the roles in Kafka's form, `User:NAME`."""

    publisher: str = "User:agents"
    operator: str = "User:operators"
    worker: str = "User:trustfold"
    recorder: str = "User:recorders"
    dashboard: str = "User:dashboards"


def acls(settings: KafkaSettings, who: RolePrincipals) -> Iterator[str]:
    """Yield one command per line; topics carry the deployment's prefix."""
    base = f"kafka-acls.sh --bootstrap-server {settings.bootstrap} --add --allow-principal"
    for principal, kind, name, operations in _grants(settings, who):
        granted = " ".join(f"--operation {operation}" for operation in operations)
        yield f"{base} {shlex.quote(principal)} {granted} --{kind} {name and shlex.quote(name)}".rstrip()


def _grants(settings: KafkaSettings, who: RolePrincipals) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield principal, kind of resource, its name, operations."""
    holders = {
        TopicRole.PLATFORM: who.publisher,
        TopicRole.OPERATOR: who.operator,
        TopicRole.WORKER: who.worker,
        TopicRole.RECORDER: who.recorder,
        TopicRole.DASHBOARD: who.dashboard,
    }
    shorts = {settings.topic(short): topic for short, topic in TOPICS.items()}
    for planned in plan(settings):
        topic = shorts.get(planned.name)
        for role, principal in holders.items():
            operations = []
            if topic is None:  # a changelog
                operations = ["Read", "Write"] if role is TopicRole.WORKER else []
            else:
                # Operators republish to the original topic; `lag` reads what workers read.
                again = role is TopicRole.OPERATOR and topic.name == "events"
                operations += ["Read"] if role in topic.readers or role is TopicRole.OPERATOR else []
                operations += ["Write"] if role in topic.writers or again else []
            if role is TopicRole.OPERATOR:
                operations += ["Create"]
            # The dashboard shows the workers' lag on every topic they read.
            measured = role is TopicRole.DASHBOARD and topic is not None and TopicRole.WORKER in topic.readers
            if operations or role is TopicRole.OPERATOR or measured:
                more = (
                    ["Describe", "DescribeConfigs"] if role in {TopicRole.OPERATOR, TopicRole.WORKER} else ["Describe"]
                )
                yield principal, "topic", planned.name, operations + more
    recorders = f"{settings.app_id}-history"
    yield who.worker, "group", settings.app_id, ["Read"]
    yield who.recorder, "group", recorders, ["Read"]
    for group in (settings.app_id, recorders):
        yield who.operator, "group", group, ["Describe"]
    yield who.dashboard, "group", settings.app_id, ["Describe"]
    # Separate groups: with rights on every group, a publisher could take the workers' partitions.
    own = who.publisher.partition(":")[2]
    yield who.publisher, "resource-pattern-type prefixed --group", f"{own}-", ["Read"]
    yield who.operator, "cluster", "", ["Describe"]
    for principal in (who.publisher, who.operator, who.worker, who.dashboard):
        yield principal, "cluster", "", ["IdempotentWrite"]
