"""Settings over a real broker: read whole before anything is folded, followed while it is, bad ones dead letters."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import started, trustfold
from kafka_run import consumer, prepare, settings_for
from kafka_run import environment as worker_environment
from story import Story
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.publish import publish
from trustfold.streams.kafka.records import OutgoingRecord, write
from waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.durable_broker]


@pytest.fixture
def deployment(broker: Any, topic_prefix: str) -> KafkaSettings:
    """Topics of a deployment of its own."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=2)
    asyncio.run(prepare(settings, []))
    return settings


@contextmanager
def worker(deployment: KafkaSettings, path: Path, *words: str) -> Iterator[Callable[[], str]]:
    """A worker over the deployment; gives what it has logged, and ends with exit code 0."""
    log = path / "worker.log"
    with (
        log.open("ab") as out,
        started("worker", *words, cwd=path, env=_ours(deployment), stdout=out, stderr=out) as process,
    ):
        try:
            yield log.read_text
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()


def _ours(deployment: KafkaSettings) -> dict[str, str]:
    return {name: value for name, value in worker_environment(deployment).items() if name.startswith("TRUSTFOLD_")}


class Agents:
    """Models that repeat themselves, each in a session of its own."""

    def __init__(self, deployment: KafkaSettings, path: Path) -> None:
        self.deployment = deployment
        self.path = path
        self.sessions = 0

    def run(self, *words: str, code: int = 0) -> bytes:
        """Run a command against the deployment."""
        done = trustfold(*words, cwd=self.path, env=_ours(self.deployment) | {"TRUSTFOLD_WORKSPACE": "w1"})
        assert done.returncode == code, done.stderr
        return done.stdout

    def decided(self) -> dict[str, set[str]]:
        """Types of decisions by session."""

        async def read() -> dict[str, set[str]]:
            found: dict[str, set[str]] = {}
            async with consumer(self.deployment, ["nudges"]) as reader:
                places = reader.assignment()
                ends = await reader.end_offsets(places)
                while [place for place in places if await reader.position(place) < ends[place]]:
                    for records in (await reader.getmany(timeout_ms=200)).values():
                        for record in records:
                            found.setdefault(record.key.decode(), set()).add(json.loads(record.value)["type"])
            return found

        return asyncio.run(read())

    def spoken_to(self) -> bool:
        """Whether a model that repeats itself, in a new session, is spoken to."""
        self.sessions += 1
        story = Story(session=f"s{self.sessions}")
        story.works("read_file", {"path": "/a"}, times=3)
        asyncio.run(publish(self.deployment, [value for _, value in story.records]))
        seen = wait_until(lambda: self.decided().get(story.session), what=f"the pattern of {story.session}", every=0.1)
        return "nudge.issued" in seen


@pytest.mark.slow
def test_workers_read_the_settings_first_and_follow_them(deployment: KafkaSettings, tmp_path: Path) -> None:
    """Saved before the start: in effect for the first event. Cleared while it runs: in effect a moment later."""
    agents = Agents(deployment, tmp_path)
    agents.run("settings", "save", "workspace", "nudge_enabled=false")
    with worker(deployment, tmp_path):
        assert not agents.spoken_to()
        agents.run("settings", "clear", "workspace", "--yes")
        wait_until(agents.spoken_to, what="the settings without the workspace's")
        agents.run("nudge", "off", "save", "workspace")
        wait_until(lambda: not agents.spoken_to(), what="the settings saved meanwhile")
    shown = json.loads(agents.run("settings", "--json"))
    assert shown["levels"]["workspace"] == {"nudge_level": "off"}


def test_a_bad_record_is_one_dead_letter_however_many_read_it(deployment: KafkaSettings, tmp_path: Path) -> None:
    """Two workers and a restart tell it under one id; the good records beside it are in effect."""
    agents = Agents(deployment, tmp_path)
    story = Story()
    story.saves("workspace:w1", rules={"enabled": False})
    story.saves("workspace:w1", nudge_level="loud")
    story.saves("user:ada", nudge_level="off")
    topic = deployment.topic("settings")
    records = [OutgoingRecord(topic, json.loads(value)["scope"].encode(), value) for _, value in story.records]
    asyncio.run(write(deployment, records))

    def letters() -> list[str]:
        listed = agents.run("dead-letters", "list", "--json").splitlines()
        return sorted(json.loads(line)["path"] for line in listed)

    expected = ["$.overrides.nudge_level", "$.overrides.rules.enabled"]
    for _ in range(2):
        with worker(deployment, tmp_path) as log:
            wait_until(lambda: "ready in generation" in log(), what=log)
            assert agents.spoken_to()
            wait_until(lambda: letters() == expected, what=lambda: str(letters()))


def test_a_worker_takes_changed_rules(deployment: KafkaSettings, tmp_path: Path) -> None:
    """The rules file of a running worker changes; a broken one is told in the log and changes nothing."""
    agents = Agents(deployment, tmp_path)
    rules = tmp_path / "r.toml"
    rules.write_text('[nudges]\nlevel = "off"\n')
    with worker(deployment, tmp_path, "--rules", "r.toml") as log:
        assert not agents.spoken_to()
        rules.write_text('[nudges]\nlevel = "full"\n')
        wait_until(lambda: "rules read again from r.toml" in log(), what=log)
        wait_until(lambda: log().count("in force from here on") == 2, what=log)
        assert agents.spoken_to()
        rules.write_text('[nudges]\nlevel = "loud"\n')
        wait_until(lambda: "the previous rules stay in force" in log(), what=log)
        assert "r.toml:2: nudges.level: must be one of off, gentle, direct, full" in log()
        assert agents.spoken_to()


def test_a_session_over_kafka_is_replaced_whole(deployment: KafkaSettings, tmp_path: Path) -> None:
    """What a session set before is not known over Kafka: it is said so, and the event is published."""
    agents = Agents(deployment, tmp_path)
    done = trustfold("nudge", "off", "--session", "s1", cwd=tmp_path, env=_ours(deployment))
    assert done.returncode == 0
    assert b"all earlier settings of session:s1 are replaced" in done.stderr
    with worker(deployment, tmp_path):
        assert not agents.spoken_to()
        assert agents.spoken_to()
