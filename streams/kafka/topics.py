"""Creates and checks topics: those of the catalogue, and the changelogs of the stages.

Partition counts cannot change later, as everything keyed depends on them, so topics are created by a deployment step,
never automatically, and a worker starts only if they match.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, TopicAlreadyExistsError, for_code

from ...errors import ConfigError
from ...schemas.topics import TOPICS, TopicRole, full_name
from .access import RIGHTS, RIGHTS_ERRORS, hidden_topics_error, unreachable, user_of
from .broker_queries import hidden_topics
from .kafka_settings import KafkaSettings
from .stages import KafkaTopology, default_topology

# Milliseconds for which changelog records are not compacted; in it an owner repairs late writes (`changelog`)
COMPACTION_LAG_MS = 10 * 60_000

CHANGELOG_CONFIG = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(COMPACTION_LAG_MS),
    # Only closed segments are compacted, and recovery reads what is not: Kafka's 1 GiB would be read at every start.
    "segment.bytes": str(64 * 1024 * 1024),
}

_WORKER = frozenset({TopicRole.WORKER})

REPLICATION = 3  # Copies of each topic, if there are that many brokers
HIDDEN = "hidden"  # Marks a topic that this user may not describe, whether it exists or not
_OF_THE_TOPIC = 1  # Source of a setting that was made for the topic (DYNAMIC_TOPIC_CONFIG), not taken from the broker's
READY_S = 30.0  # Seconds to wait for a new topic's leaders


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Planned properties of one topic."""

    name: str  # real name
    partitions: int  # number of partitions
    replication: int  # copies; 0 means REPLICATION, or the number of brokers if smaller
    config: dict[str, str]  # topic settings that differ from the broker's defaults
    purpose: str  # content of the topic
    keyed: bool  # whether the worker depends on its partition count
    essential: bool  # whether the worker cannot run without it


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """Difference between a topic and its plan."""

    topic: str  # real name
    what: str  # `missing`, HIDDEN, `partitions`, or the name of a setting
    wanted: str  # planned value
    found: str  # value in the cluster; empty without one
    fatal: bool  # whether a worker must not start
    advice: str  # remedy
    chosen: bool = False  # the difference is harmless and may be the operator's choice

    def __str__(self) -> str:
        """Format in one line."""
        if self.what == HIDDEN:
            return f"{self.topic} may not be seen by this user; {self.advice}"
        if self.what == "missing":
            return f"{self.topic} does not exist; {self.advice}"
        return f"{self.topic}: {self.what} is {self.found or 'unknown'}, should be {self.wanted}; {self.advice}"


def plan(settings: KafkaSettings, topology: KafkaTopology | None = None) -> list[TopicPlan]:
    """Every topic a deployment needs: the catalogue, and one changelog per stage.

    Raises:
        ConfigError: the topic prefix makes a name that no broker takes.
    """
    topology = topology or default_topology()
    sources = topology.sources
    made = [
        TopicPlan(
            full_name(settings.topic_prefix, topic.name),
            settings.partitions,
            settings.replication,
            topic.config,
            topic.carries,
            keyed=topic.name in sources,
            essential=not topic.writers.isdisjoint(_WORKER) or not topic.readers.isdisjoint(_WORKER),
        )
        for topic in TOPICS.values()
    ]
    changelogs = [
        TopicPlan(
            settings.changelog(stage.name),
            settings.partitions,
            settings.replication,
            CHANGELOG_CONFIG,
            f"State of the {stage.name} stage; the worker's own.",
            keyed=True,
            essential=True,
        )
        for stage in topology.stages
    ]
    return made + changelogs


async def create_topics(settings: KafkaSettings, topology: KafkaTopology | None = None) -> list[str]:
    """Create missing topics and wait until they can be used; existing ones are left unchanged.

    `find_differences` reports whether those match.

    Returns:
        Names of the created topics.
    """
    planned = plan(settings, topology)
    async with _admin(settings) as admin:
        existing = set(await admin.list_topics())
        wanted = [topic for topic in planned if topic.name not in existing]
        if not wanted:
            return []
        brokers = len((await admin.describe_cluster())["brokers"])
        response = await admin.create_topics(
            [
                NewTopic(
                    topic.name,
                    topic.partitions,
                    topic.replication or min(REPLICATION, brokers),
                    topic_configs=topic.config,
                )
                for topic in wanted
            ]
        )
        created = [name for name, code, *_ in response.topic_errors if not code]
        for name, code, *message in response.topic_errors:
            error = for_code(code)
            if code and error is not TopicAlreadyExistsError:
                reason = next((text for text in message if text), "") or error.description
                remedy = f"; {user_of(settings)} needs Create on it: {RIGHTS}" if error in RIGHTS_ERRORS else ""
                raise ConfigError(f"the brokers refuse topic {name}: {error.__name__}: {reason}{remedy}")
        await _wait_for_leaders(admin, [topic.name for topic in wanted])
    return created


async def find_differences(settings: KafkaSettings, topology: KafkaTopology | None = None) -> list[TopicDifference]:
    """Compare the cluster with the plan.

    Raises:
        ConfigError: no broker answers.
    """
    planned = plan(settings, topology)
    async with _admin(settings) as admin:
        existing = set(await admin.list_topics())
        present = [topic for topic in planned if topic.name in existing]
        found_as = {
            described["topic"]: described["partitions"]
            for described in await admin.describe_topics([topic.name for topic in present])
        }
        configs = await _configs(admin, [topic.name for topic in present])
        hidden_names = await hidden_topics(
            admin._client, [topic.name for topic in planned if topic.name not in existing]
        )
    found = [
        TopicDifference(topic.name, HIDDEN, "", "", topic.essential, f"give this user the rights of its role; {RIGHTS}")
        if topic.name in hidden_names
        else TopicDifference(topic.name, "missing", "", "", topic.essential, "run `trustfold topics create`")
        for topic in planned
        if topic.name not in existing
    ]
    for topic in present:
        found += _compare(topic, len(found_as[topic.name]), configs.get(topic.name))
        copies = min(len(partition["replicas"]) for partition in found_as[topic.name])
        if topic.replication and copies != topic.replication:
            advice = "change it with kafka-reassign-partitions, or set TRUSTFOLD_REPLICATION to what you chose"
            found.append(
                TopicDifference(
                    topic.name,
                    "replication",
                    str(topic.replication),
                    str(copies),
                    fatal=False,
                    advice=advice,
                    chosen=True,
                )
            )
    return found


async def check_topics(settings: KafkaSettings, topology: KafkaTopology | None = None) -> list[TopicDifference]:
    """Check that a worker can run on the existing topics.

    Returns:
        Differences that are harmless to a worker.
    """
    found = await find_differences(settings, topology)
    fatal = [difference for difference in found if difference.fatal]
    refuse_hidden(settings, fatal)
    if fatal:
        raise ConfigError("the topics do not fit:\n" + "\n".join(f"  {difference}" for difference in fatal))
    return found


def refuse_hidden(settings: KafkaSettings, differences: Iterable[TopicDifference]) -> None:
    """Raise Denied if this user may not describe topics, as they cannot be checked."""
    names = [difference.topic for difference in differences if difference.what == HIDDEN]
    if names:
        raise hidden_topics_error(settings, names)


def _compare(topic: TopicPlan, partitions: int, config: dict[str, str] | None) -> Iterable[TopicDifference]:
    if topic.keyed and partitions != topic.partitions:
        advice = (
            f"set TRUSTFOLD_PARTITIONS={partitions} if all of them have as many; otherwise use a new prefix and app id "
            "and replay the events, partitions cannot be changed under keyed state"
        )
        yield TopicDifference(
            topic.name, "partitions", str(topic.partitions), str(partitions), fatal=True, advice=advice
        )
    elif partitions != topic.partitions:
        advice = "leave it if you chose it: no worker depends on it"
        yield TopicDifference(
            topic.name, "partitions", str(topic.partitions), str(partitions), fatal=False, advice=advice, chosen=True
        )
    if config is None:
        return
    alter = "change it with kafka-configs --alter"
    for name, wanted in topic.config.items():
        value = config.get(name, "")
        if value == wanted:
            continue
        if name == "cleanup.policy":
            # A changelog with deletion loses state; a compacted event log loses events.
            yield TopicDifference(topic.name, name, wanted, value, topic.essential, alter)
        elif name in {"min.compaction.lag.ms", "max.message.bytes"}:
            if int(value or 0) < int(wanted):
                yield TopicDifference(topic.name, name, f"at least {wanted}", value, False, alter)  # noqa: FBT003
        else:
            advice = f"{alter}, or leave it if you chose it"
            yield TopicDifference(topic.name, name, wanted, value, False, advice, chosen=True)  # noqa: FBT003


FUTURE_MS = 3_600_000  # Kafka's default of how far a record's time may be ahead of the brokers' clocks, milliseconds


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Record times that a topic keeps and its brokers accept."""

    topic: str  # real name
    kept_ms: int = -1  # milliseconds for which records are kept; -1 means for ever
    future_ms: int = FUTURE_MS  # how far in milliseconds a record's time may be ahead of the brokers' clocks

    def check(self, at_ms: int, now_ms: int, what: str) -> None:
        """Raise ConfigError if a record of this time would be deleted before it is folded, or be refused.

        Args:
            at_ms: time of the record, milliseconds.
            now_ms: the present, milliseconds.
            what: start of the message: which record it is.
        """
        if self.kept_ms >= 0 and at_ms < now_ms - self.kept_ms:
            raise ConfigError(
                f"{what}, and {self.topic} keeps records for {_span(self.kept_ms)}: they would be deleted before they "
                "are folded. Run `trustfold topics keep --for-ever` first (and `trustfold topics keep --days 7` "
                "afterwards), or publish with --now, which stamps all of them with the present"
            )
        if at_ms > now_ms + self.future_ms:
            raise ConfigError(
                f"{what}, and the brokers refuse records more than {_span(self.future_ms)} ahead of their clocks "
                f"(message.timestamp.after.max.ms of {self.topic}). Correct the times, or publish with --now, which "
                "stamps all of them with the present"
            )


def _span(milliseconds: int) -> str:
    """Describe a length of time in its largest whole unit."""
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if milliseconds >= 2 * size or (milliseconds >= size and milliseconds % size == 0):
            count = milliseconds // size
            return f"{count:,} {unit if count != 1 else unit[:-1]}"
    return f"{milliseconds / 1000:g} s"


async def time_limits(settings: KafkaSettings, topic: str) -> TimeLimits:
    """Read which record times a topic (real name) keeps; Kafka's defaults if this user may not read its settings."""
    async with _admin(settings) as admin:
        config = (await _configs(admin, [topic])).get(topic)
    if config is None:
        return TimeLimits(topic)
    if config.get("message.timestamp.type") == "LogAppendTime":
        raise ConfigError(
            f"{topic} stamps records with their arrival (message.timestamp.type is LogAppendTime): a backlog cannot be "
            "folded in order of time: set CreateTime, or publish with --now"
        )
    deletes = "delete" in config.get("cleanup.policy", "delete")
    return TimeLimits(
        topic,
        int(config.get("retention.ms") or -1) if deletes else -1,
        int(config.get("message.timestamp.after.max.ms") or FUTURE_MS),
    )


async def keep_events(settings: KafkaSettings, kept_ms: int) -> str:
    """Set for how many milliseconds the `events` topic keeps records; -1 means for ever. Other settings stay.

    Returns:
        Real name of the topic.
    """
    topic = settings.topic("events")
    async with _admin(settings) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        own: dict[str, str] = {}
        for response in await admin.describe_configs([resource]):
            for code, message, _, _, entries in response.resources:
                if code:
                    raise ConfigError(
                        f"the brokers do not show the settings of {topic}: {message or for_code(code).__name__}"
                    )
                # The request replaces all settings of the topic itself, which the brokers mark with 1.
                own = {entry[0]: entry[1] for entry in entries if entry[3] == _OF_THE_TOPIC}
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, own | {"retention.ms": str(kept_ms)})
        for response in await admin.alter_configs([changed]):
            for code, message, *_ in response.resources:
                if code:
                    raise ConfigError(f"the brokers refuse the change: {message or for_code(code).__name__}")
        deadline = asyncio.get_running_loop().time() + READY_S
        while (await _configs(admin, [topic]))[topic].get("retention.ms") != str(kept_ms):
            if asyncio.get_running_loop().time() > deadline:
                raise ConfigError(
                    f"the brokers took the change, and do not show it after {READY_S:g} s: look at their logs"
                )
            await asyncio.sleep(0.05)
    return topic


async def _configs(admin: Any, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the settings of topics; topics whose settings may not be read are left out."""
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    found = {}
    for response in await admin.describe_configs(resources):
        for code, _, _, name, entries in response.resources:
            if not code:
                found[name] = {entry[0]: entry[1] for entry in entries}
    return found


async def _wait_for_leaders(admin: Any, names: list[str]) -> None:
    deadline = asyncio.get_running_loop().time() + READY_S
    while True:
        described = await admin.describe_topics(names)
        if all(
            topic["error_code"] == 0 and all(part["leader"] >= 0 for part in topic["partitions"]) for topic in described
        ):
            return
        if asyncio.get_running_loop().time() > deadline:
            raise ConfigError(f"the new topics have no leaders after {READY_S:g} s; look at the brokers' logs")
        await asyncio.sleep(0.1)


@asynccontextmanager
async def _admin(settings: KafkaSettings) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(**settings.client_arguments())
    try:
        await admin.start()
    except KafkaConnectionError as error:
        await admin.close()
        raise await unreachable(settings) from error
    try:
        yield admin
    finally:
        await admin.close()
