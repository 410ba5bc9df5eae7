"""Kafka checks of `trustfold doctor`: brokers, topics, rights, clock, groups, lag. They change nothing."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import create_conn
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import JoinGroupRequest
from aiokafka.protocol.produce import ProduceRequest

from ..errors import DOCS, ConfigError, TrustfoldError
from ..projections.rule_source import RULES_TOPIC, fingerprint, rules_in_force
from ..schemas.topics import TOPICS, TopicRole
from ..streams.kafka.access import CONNECTION_FAULTS, PATIENCE_S, WANTS_SASL, reason, run_client
from ..streams.kafka.broker_queries import clock_of, group_of, hidden_topics, rights_on
from ..streams.kafka.publisher_faults import MISTAKES, OTHER_PARTITIONER, mistake_of
from ..streams.kafka.topics import HIDDEN, find_differences, plan
from .clients.kafka_log import KafkaSettings, StoredRecord, read
from .doctor_machine import FIX, NOTE, OK, SKIPPED, CheckFinding
from .lag import age_in_words, group_lags

KAFKA_PORT = 9092
# Clock difference to fix, in seconds; event times are cut at one minute beyond their record's timestamp
MAX_SKEW_S = 5.0

EXPIRES_SOON_S = 14 * 86_400
SHOWN = 5

LATEST = 200  # Number of the latest events of each partition that are looked at

_RULES = "workers' rules"
_PUBLISHERS = "publishers"

_NEEDED = (ProduceRequest, FetchRequest, JoinGroupRequest)
# Errors caused by a broker; any other error is a bug of trustfold and is not caught
_REFUSED = (KafkaError, TrustfoldError, TimeoutError, OSError, ValueError)


def examine_kafka(
    bootstrap: str | None, role: TopicRole, disk: Callable[[str, Path, str], CheckFinding]
) -> Iterator[CheckFinding]:
    """Findings of all Kafka checks, in order."""
    try:
        settings = KafkaSettings.from_env(bootstrap=bootstrap)
        settings.security.tls_context()
    except ConfigError as error:
        yield CheckFinding("kafka settings", FIX, str(error), "correct that variable; Kafka was not checked")
        return
    yield CheckFinding("kafka settings", OK, _security(settings))
    if settings.store == "rocksdb":
        yield disk("worker's data", settings.data_dir, "TRUSTFOLD_DATA_DIR")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # aiokafka logs the errors that are reported here
    yield from run_client(_all(settings, role))


async def _all(settings: KafkaSettings, role: TopicRole) -> list[CheckFinding]:
    found = [one async for one in _brokers(settings)]
    if not any(one.status in {OK, NOTE} for one in found):
        skipped = "topics, rights, clock, groups, lag and workers' rules"
        return [*found, CheckFinding("kafka", SKIPPED, f"{skipped} were not checked: no broker can be used")]
    admin = AIOKafkaAdminClient(**settings.client_arguments(), request_timeout_ms=int(PATIENCE_S * 1000))
    try:
        async with asyncio.timeout(PATIENCE_S):
            await admin.start()
        for check in (_cluster, _topics, _rights, _clock, _groups, _lag, _publishers, _rules):
            found += [one async for one in check(settings, admin, role)]
    except _REFUSED as error:
        found.append(CheckFinding("kafka", FIX, _message(error), WANTS_SASL))
    finally:
        await admin.close()
    return found


def _security(settings: KafkaSettings) -> str:
    security = settings.security
    parts = [security.protocol]
    if security.uses_sasl:
        parts.append(f"{security.mechanism_used} as {security.username}")
    if security.uses_tls:
        parts.append(f"trusting {security.ca_location or 'the certificates of this system'}")
        if security.certificate_location:
            parts.append(f"with the certificate {security.certificate_location}")
    return f"{settings.bootstrap}, {', '.join(parts)}; topics {settings.topic_prefix}*, group {settings.app_id}"


async def _brokers(settings: KafkaSettings) -> AsyncIterator[CheckFinding]:
    """Finding about each named broker; one client for all would use the first that answers and hide the others."""
    arguments = settings.client_arguments()
    arguments.pop("bootstrap_servers")
    for server in settings.servers:
        host, port = _address(server)
        check = f"broker {server}"
        connection = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                connection = await create_conn(host, port, **arguments)
            yield _protocol_finding(check, connection)
        except CONNECTION_FAULTS as error:
            yield CheckFinding(check, FIX, *reason(error))
        finally:
            if connection is not None:
                connection.close()


def _protocol_finding(check: str, connection: Any) -> CheckFinding:
    versions: dict[int, tuple[int, int]] = connection._versions  # noqa: SLF001 - aiokafka has no public API for it
    for request in _NEEDED:
        low, high = versions.get(request.API_KEY, (1, 0))
        if not any(low <= one.API_VERSION <= high for one in request._CLASSES):  # noqa: SLF001 - as above
            name = request.__name__.removesuffix("Request")
            advice = "use a broker of Kafka 2.1 or newer, and the newest aiokafka"
            return CheckFinding(check, FIX, f"it speaks {name} {low} to {high}, which this client does not", advice)
    spoken = ", ".join(
        f"{request.__name__.removesuffix('Request')} to version {versions[request.API_KEY][1]}" for request in _NEEDED
    )
    certificate = connection._writer.get_extra_info("peercert") if connection._writer else None  # noqa: SLF001 - as above
    if certificate and "notAfter" in certificate:
        left = ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()
        if left < EXPIRES_SOON_S:
            found = f"its certificate ends on {certificate['notAfter']}"
            return CheckFinding(check, NOTE, found, "renew it before clients are refused")
    return CheckFinding(check, OK, f"answers; {spoken}")


def _address(server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]") or (server.count(":") > 1 and "]" not in server):
        return server.strip("[]"), KAFKA_PORT
    return host.strip("[]"), int(port)


async def _cluster(settings: KafkaSettings, admin: Any, _role: TopicRole) -> AsyncIterator[CheckFinding]:
    cluster = await admin.describe_cluster()
    brokers = cluster["brokers"]
    found = f"{len(brokers)} broker{'s' * (len(brokers) != 1)}, cluster {cluster.get('cluster_id')}"
    copies = settings.replication or 3
    if len(brokers) < copies:
        advice = "fine for a trial; three brokers survive the loss of one"
        yield CheckFinding("cluster", NOTE, f"{found}: topics cannot have {copies} copies", advice)
    else:
        yield CheckFinding("cluster", OK, found)


async def _topics(settings: KafkaSettings, admin: Any, _role: TopicRole) -> AsyncIterator[CheckFinding]:
    planned = {topic.name: topic for topic in plan(settings)}
    described = [topic for topic in await admin.describe_topics() if topic["topic"] in planned]
    async with asyncio.timeout(PATIENCE_S):
        differences = [one for one in await find_differences(settings) if one.what != HIDDEN]  # see `_rights`
    missing = [one for one in differences if one.what == "missing"]
    if missing:
        some = ", ".join(one.topic for one in missing[:SHOWN]) + (", …" if len(missing) > SHOWN else "")
        found = f"{len(missing)} of {len(planned)} do not exist: {some}"
        advice = "run `trustfold topics create`, or correct TRUSTFOLD_TOPIC_PREFIX or TRUSTFOLD_APP_ID"
        if len(missing) < len(planned):
            advice += f"; if they were lost, {DOCS}/recovery.md says what was lost with them and how it comes back"
        yield CheckFinding("topics", FIX, found, advice)
    for one in differences:
        if one.what != "missing":
            found = f"{one.topic}: {one.what} is {one.found or 'unknown'}, should be {one.wanted}"
            yield CheckFinding("topics", NOTE if one.chosen else FIX, found, one.advice)
    parts = [(topic["topic"], part) for topic in described for part in topic["partitions"]]
    for what, bad, advice in (
        ("without a leader", [p for p in parts if p[1]["leader"] < 0], "start the broker that has them"),
        (
            "with fewer copies in step than there should be",
            [p for p in parts if len(p[1]["isr"]) < len(p[1]["replicas"])],
            "look for a broker that is away or slow",
        ),
    ):
        if bad:
            some = ", ".join(f"{name} {part['partition']}" for name, part in bad[:SHOWN])
            yield CheckFinding("partitions", FIX, f"{len(bad)} {what}: {some}", advice)
            break
    else:
        yield CheckFinding("partitions", OK, f"{len(parts):,} of {len(described)} topics, each with a leader")
    if not [one for one in differences if not one.chosen]:
        found = f"all {len(planned)}" if len(described) == len(planned) else f"the {len(described)} visible ones"
        yield CheckFinding("topics", OK, f"{found} fit")


def _wanted_rights(settings: KafkaSettings, role: TopicRole) -> dict[str, set[str]]:
    wanted: dict[str, set[str]] = {}
    for topic in TOPICS.values():
        needs = {"Read"} if role in topic.readers else set()
        needs |= {"Write"} if role in topic.writers else set()
        if needs:
            wanted[settings.topic(topic.name)] = needs
    if role is TopicRole.WORKER:
        for planned in plan(settings):
            if planned.name not in wanted and planned.essential:  # the changelogs
                wanted[planned.name] = {"Read", "Write"}
    return wanted


async def _rights(settings: KafkaSettings, admin: Any, role: TopicRole) -> AsyncIterator[CheckFinding]:
    wanted = _wanted_rights(settings, role)
    existing = set(await admin.list_topics())
    check = f"rights as {role}"
    try:
        async with asyncio.timeout(PATIENCE_S):
            client = admin._client  # noqa: SLF001 - aiokafka has no public API for it
            hidden_names = await hidden_topics(client, [name for name in wanted if name not in existing])
            rights = await rights_on(admin, [name for name in wanted if name in existing.union(hidden_names)])
    except (*_REFUSED, NotImplementedError) as error:
        yield CheckFinding(check, SKIPPED, f"the brokers do not report it: {_message(error)}")
        return
    unreported = [name for name, have in rights.items() if have is None]
    missing = {
        name: sorted(wanted[name] - have) for name, have in rights.items() if have is not None and wanted[name] - have
    }
    for name, needs in missing.items():
        yield CheckFinding(check, FIX, f"no {' and '.join(needs)} on topic {name}", _acl(settings, needs, name))
    if unreported:
        yield CheckFinding(check, SKIPPED, f"the brokers do not report rights on {len(unreported)} topics")
    elif not missing and rights:
        yield CheckFinding(check, OK, f"all that is needed on {len(rights)} topics")
    elif not rights:
        yield CheckFinding(check, SKIPPED, "there is no topic to have rights on")


def _acl(settings: KafkaSettings, needs: list[str], topic: str) -> str:
    user = settings.security.username or "…"
    operations = " ".join(f"--operation {one}" for one in needs)
    return f"kafka-acls --add --allow-principal User:{user} {operations} --topic {topic}"


async def _clock(_settings: KafkaSettings, admin: Any, _role: TopicRole) -> AsyncIterator[CheckFinding]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            clock = await clock_of(admin)
    except (*_REFUSED, NotImplementedError, IncompatibleBrokerVersion) as error:
        reason = (
            f"the brokers do not report their time ({_message(error)}); it needs Describe on the cluster, and KRaft"
        )
        yield CheckFinding("clock", SKIPPED, reason)
        return
    side = "ahead of" if clock.ahead_s > 0 else "behind"
    found = f"the controller's is {abs(clock.ahead_s):.2f} s {side} ours, give or take {clock.uncertain_s:.2f}"
    if abs(clock.ahead_s) - clock.uncertain_s > MAX_SKEW_S:
        yield CheckFinding("clock", FIX, found, "synchronise both clocks (NTP): windows and deadlines depend on them")
    else:
        yield CheckFinding("clock", OK, found)


async def _groups(settings: KafkaSettings, admin: Any, role: TopicRole) -> AsyncIterator[CheckFinding]:
    groups = {settings.app_id: "worker", f"{settings.app_id}-history": "recorder"}
    for name, kind in groups.items():
        check = f"group {name}"
        needs_read = role is TopicRole.WORKER if kind == "worker" else role is TopicRole.RECORDER
        try:
            async with asyncio.timeout(PATIENCE_S):
                group = await group_of(admin, name)
        except (*_REFUSED, NotImplementedError) as error:
            status = FIX if needs_read else SKIPPED
            advice = "this user needs Describe on the group, the workers' own needs Read"
            yield CheckFinding(check, status, f"cannot be seen: {_message(error)}", advice)
            continue
        if needs_read and group.rights is not None and "Read" not in group.rights:
            user = settings.security.username or "…"
            advice = f"kafka-acls --add --allow-principal User:{user} --operation Read --group {name}"
            yield CheckFinding(check, FIX, "no Read on the group", advice)
        elif group.members:
            hosts = ", ".join(sorted({host for _, host in group.members}))
            yield CheckFinding(check, OK, f"{group.state}, {len(group.members)} {kind}s on {hosts}")
        else:
            status, advice = (NOTE, "start `trustfold worker`") if kind == "worker" else (SKIPPED, "")
            yield CheckFinding(check, status, f"no {kind} runs", advice)


async def _workers(settings: KafkaSettings, admin: Any) -> int | None:
    """Number of running workers; None if the group cannot be seen."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return len((await group_of(admin, settings.app_id)).members)
    except (*_REFUSED, NotImplementedError):
        return None


async def _lag(settings: KafkaSettings, admin: Any, _role: TopicRole) -> AsyncIterator[CheckFinding]:
    try:
        groups = await group_lags(settings)
    except _REFUSED as error:
        yield CheckFinding("lag", SKIPPED, _message(error))
        return
    running = await _workers(settings, admin)
    for group in groups:
        lost = sum(one.deleted for one in group.partitions)
        found = f"{group.role}s are {group.records:,} records behind, the oldest {age_in_words(group.seconds)}"
        if lost:
            advice = "start more of them, or keep topics longer (retention.ms)"
            yield CheckFinding("lag", FIX, f"{found}; {lost:,} were deleted before they were read", advice)
        elif group.role == "worker" and group.records and running == 0:
            advice = "start `trustfold worker`: nothing is folded, and guards see old decisions"
            yield CheckFinding("lag", FIX, f"{found}, and no worker runs", advice)
        else:
            yield CheckFinding("lag", OK, found)


async def _publishers(settings: KafkaSettings, _admin: Any, _role: TopicRole) -> AsyncIterator[CheckFinding]:
    try:
        records, ends = await read(settings, settings.topic("events"), most=LATEST)
    except _REFUSED as error:
        yield CheckFinding(_PUBLISHERS, SKIPPED, f"the latest events cannot be read: {_message(error)}")
        return
    for finding in publisher_findings(records, len(ends), time.time() * 1000):
        yield finding


def publisher_findings(records: Sequence[StoredRecord], partitions: int, now_ms: float) -> Iterator[CheckFinding]:
    """Findings whether publishers key and stamp their events rightly, from the latest records of `events`."""
    kinds: Counter[str] = Counter()
    examples: dict[str, StoredRecord] = {}
    for record in records:
        kind = mistake_of(record.key.encode(), record.value, record.partition, partitions)
        if kind:
            kinds[kind] += 1
            examples[kind] = record
    if kinds[OTHER_PARTITIONER] == len(records):
        del kinds[OTHER_PARTITIONER]  # all use the same one
    wrong = [(kind, count) for kind, count in kinds.most_common() if count]
    latest = f"the latest {len(records):,} events"
    for kind, count in wrong:
        what, _, remedy = MISTAKES[kind].rpartition(": ")
        found = f"of {latest} {count:,} are keyed wrongly; the one at {examples[kind].ref} {what}"
        yield CheckFinding(_PUBLISHERS, FIX, found, f"{remedy} ({DOCS}/events.md#mistakes-of-publishers)")
    ahead = max((record.timestamp - now_ms for record in records), default=0.0) / 1000
    if ahead > MAX_SKEW_S:
        found = f"an event is stamped {ahead:,.0f} s ahead of this machine's clock"
        yield CheckFinding(_PUBLISHERS, FIX, found, "synchronise the publishers' clocks (NTP)")
    elif not wrong:
        yield CheckFinding(_PUBLISHERS, OK, f"{latest} are keyed and stamped rightly")


async def _rules(settings: KafkaSettings, _admin: Any, _role: TopicRole) -> AsyncIterator[CheckFinding]:
    try:
        records, _ = await read(settings, settings.topic(RULES_TOPIC))
    except _REFUSED as error:
        yield CheckFinding(_RULES, SKIPPED, f"it is not known which rules are used: {_message(error)}")
        return
    yield rules_finding(records)


def rules_finding(records: Iterable[StoredRecord]) -> CheckFinding:
    """Finding whether all partitions use the same rules, from the records of `rules` in log order."""
    latest = {record.key: record.value for record in records if record.value is not None}
    if not latest:
        return CheckFinding(_RULES, SKIPPED, "no worker has folded anything yet")
    try:
        names = {place: fingerprint(rules_in_force(value)) for place, value in latest.items()}
    except msgspec.ValidationError as error:
        return CheckFinding(_RULES, SKIPPED, f"another version wrote them: {_message(error)}")
    by_name: dict[str, list[str]] = {}
    for place, name in sorted(names.items()):
        by_name.setdefault(name, []).append(place)
    if len(by_name) == 1:
        return CheckFinding(_RULES, OK, f"all {len(names)} partitions are folded by the same rules ({names[place]})")
    found = "; ".join(
        f"{name}: {', '.join(places[:SHOWN])}{', …' if len(places) > SHOWN else ''}" for name, places in by_name.items()
    )
    advice = "give every worker the same files and TRUSTFOLD_* variables, and restart those with other ones"
    return CheckFinding(_RULES, FIX, f"partitions are folded by {len(by_name)} different rules ({found})", advice)


def _message(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
