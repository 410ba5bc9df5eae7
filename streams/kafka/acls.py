"""Access control lists for Kafka: who may read and write which topic, as commands for `kafka-acls.sh`.

Publishers write `events` and read decisions; only operators write `commands` and `settings`; workers do the rest. See
docs/operating.md, Roles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...schemas.topics import TOPICS
from .settings import KafkaSettings
from .topics import plan

ORDERS = frozenset({"commands", "settings"})


class Principals(NamedTuple):
    """Who is who, as Kafka names them: `User:NAME`."""

    publisher: str = "User:agents"
    operator: str = "User:operators"
    worker: str = "User:trustfold"


def acls(settings: KafkaSettings, who: Principals) -> Iterator[str]:
    """One command a line; topics carry the deployment's prefix."""
    base = f"kafka-acls.sh --bootstrap-server {settings.bootstrap} --add"
    names = {one.name: next((name for name in TOPICS if one.name.endswith(name)), "") for one in plan(settings)}
    for name, short in names.items():
        topic = f"--topic {name}"
        if short == "events":
            yield f"{base} --allow-principal {who.publisher} --operation Write --operation Describe {topic}"
        elif short in TOPICS and not TOPICS[short].internal and short not in ORDERS | {"dead-letters"}:
            yield f"{base} --allow-principal {who.publisher} --operation Read --operation Describe {topic}"
        if short in ORDERS | {"events", "dead-letters"}:  # what operators publish again, and their marks on it
            yield f"{base} --allow-principal {who.operator} --operation Write {topic}"
        yield f"{base} --allow-principal {who.operator} --operation Read --operation Describe {topic}"
        yield f"{base} --allow-principal {who.worker} --operation Read --operation Write --operation Describe {topic}"
    for principal in who:
        yield f"{base} --allow-principal {principal} --operation Read --group '*'"
    yield f"{base} --allow-principal {who.worker} --operation IdempotentWrite --cluster"
    changelogs = f"--resource-pattern-type prefixed --topic {settings.app_id}-"
    yield f"{base} --allow-principal {who.worker} --operation All {changelogs}"
