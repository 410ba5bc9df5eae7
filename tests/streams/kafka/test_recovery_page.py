"""Each procedure of docs/recovery.md on a real broker: topics, changelogs, offsets are lost, and states come back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from broker_kit import Broker
from kafka_run import Written, consumer, environment, follow, prepare, settings_for
from recorded import replayed
from scenarios import cli_command_failures
from trustfold.projections.topology import STAGE_OF_TOPIC
from trustfold.rules.rules import RuleSet
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.topics import create_topics
from waiting import wait_until
from warm_process import WarmProcess

pytestmark = [pytest.mark.slow, pytest.mark.durable_broker, pytest.mark.timeout(400)]

STAGES = ("session", "tool", "fleet")


class Deployment:
    """Topics of one deployment with an escalated tool, and its workers."""

    def __init__(self, settings: KafkaSettings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.log = ""

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that has its partitions, until the end of the block; afterwards `log` is what it said."""
        path = self.folder / "worker.log"
        with path.open("wb") as sink:
            process = WarmProcess(
                [sys.executable, "-m", "trustfold", "worker", *arguments],
                env=environment(self.settings) | {"TRUSTFOLD_DATA_DIR": str(self.folder / "data")},
                stderr=sink,
                cwd=self.folder,
            )
            try:
                wait_until(lambda: "ready in generation" in path.read_text(), what=path.read_text, timeout=120)
                yield process
            finally:
                process.terminate()
                code = process.wait(60)
                self.log = path.read_text()
        assert code == 0, self.log

    def folded(self) -> dict[str, str]:
        """State of each key on `state`, once it is that of a replay."""
        with self.worker() as process:
            return self.told(process)

    def told(self, process: subprocess.Popen[bytes]) -> dict[str, str]:
        """The same, of a worker that runs."""
        return _states(asyncio.run(follow(self.settings, _complete, process, 120)))

    async def lose(self, topics: Iterable[str]) -> None:
        """Delete topics (real names) and create what is missing."""
        names = list(topics)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.servers)
        await admin.start()
        try:
            await admin.delete_topics(names)
            while set(names) & set(await admin.list_topics()):  # noqa: ASYNC110 - the broker sends no event
                await asyncio.sleep(0.1)
        finally:
            await admin.close()
        await create_topics(self.settings)

    async def reset_offsets(self) -> None:
        """Set the group's offsets to the beginning of all topics, as kafka-consumer-groups.sh does."""
        names = [self.settings.topic(name) for name in STAGE_OF_TOPIC]
        async with AIOKafkaConsumer(
            bootstrap_servers=self.settings.servers, group_id=self.settings.app_id, enable_auto_commit=False
        ) as member:
            places = [TopicPartition(name, number) for name in names for number in range(self.settings.partitions)]
            member.assign(places)
            await member.commit(dict.fromkeys(places, 0))


@pytest.fixture
def deployment(broker: Broker, topic_prefix: str, tmp_path: Path) -> Deployment:
    """Topics with the events of a tool that fails."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=2)
    asyncio.run(prepare(settings, cli_command_failures().records))
    return Deployment(settings, tmp_path)


@cache
def _expected() -> dict[str, str]:
    """State of each key after a replay."""
    written: Written = {}
    for output in replayed(cli_command_failures().records, RuleSet()):
        written.setdefault((output.topic, output.key), []).append(output.value)
    return _states(written)


def _states(written: Written) -> dict[str, str]:
    known = {key: values[-1] for (topic, key), values in written.items() if topic == "state"}
    return {key: str(orjson.loads(value).get("state")) for key, value in known.items() if value is not None}


def _complete(written: Written) -> bool:
    return _states(written) == _expected()


def test_a_new_state_topic_is_filled_again(deployment: Deployment) -> None:
    """The worker finds another topic id, publishes what is not at its default, and says so; once."""
    before = deployment.folded()
    asyncio.run(deployment.lose([deployment.settings.topic("state")]))
    assert deployment.folded() == before
    assert deployment.log.count(f"{deployment.settings.topic('state')} is a new topic; states") == 1
    with deployment.worker() as process:
        deployment.told(process)
    assert "is a new topic" not in deployment.log


def test_states_are_published_again_when_told_to(deployment: Deployment) -> None:
    """With the option a worker writes each public state once more, under the same topic id."""
    before = deployment.folded()

    async def count() -> int:
        async with consumer(deployment.settings, ["state"]) as reader:
            return sum((await reader.end_offsets(reader.assignment())).values())

    written = asyncio.run(count())
    with deployment.worker("--publish-states"):
        wait_until(lambda: asyncio.run(count()) >= written + len(before), what="the states again", every=0.5)
    assert "are published again" in deployment.log


def test_lost_changelogs_are_told_and_built_again(deployment: Deployment) -> None:
    """A start without them warns with the remedy; after the remedy the states are those of before."""
    before = deployment.folded()
    changelogs = [deployment.settings.changelog(stage) for stage in STAGES]
    asyncio.run(deployment.lose(changelogs))
    with deployment.worker():
        pass
    assert "are empty although records were folded" in deployment.log
    assert "docs/recovery.md" in deployment.log

    asyncio.run(deployment.lose([*changelogs, deployment.settings.topic("state")]))
    asyncio.run(deployment.reset_offsets())
    assert deployment.folded() == before
    assert "are empty although" not in deployment.log


def test_a_lost_source_is_refused_until_the_states_are_deleted(deployment: Deployment) -> None:
    """Positions in the states would hide new records; without group and changelogs these are folded."""
    before = deployment.folded()
    events = deployment.settings.topic("events")
    asyncio.run(deployment.lose([events]))
    refused = subprocess.run(
        [sys.executable, "-m", "trustfold", "worker"],
        env=environment(deployment.settings),
        cwd=deployment.folder,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert refused.returncode == 1
    assert b"created again" in refused.stderr
    changelogs = [deployment.settings.changelog(stage) for stage in STAGES]
    asyncio.run(deployment.lose([*changelogs, deployment.settings.topic("state")]))
    asyncio.run(deployment.reset_offsets())
    asyncio.run(prepare(deployment.settings, cli_command_failures().records))
    assert deployment.folded() == before


def test_reset_offsets_are_ignored_and_that_is_told(deployment: Deployment) -> None:
    """Nothing is folded twice, and the log says why."""
    deployment.folded()
    asyncio.run(deployment.reset_offsets())
    with deployment.worker():
        pass
    assert "a reset of offsets folds no record again" in deployment.log
