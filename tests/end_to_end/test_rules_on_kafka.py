"""Rules and settings that change under running, killed and restarted workers: the recorded places decide all again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import orjson
import pytest
from broker_kit import Broker
from busy_agents import busy_agents
from kafka_run import environment, prepare, settings_for, stop_worker
from recorded import rows
from refolded import compared
from trustfold.cli.lag import group_lags
from trustfold.rules.rules import RuleSet
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.publish import publish
from trustfold.streams.kafka.records import OutgoingRecord, write
from waiting import wait_until
from warm_process import WarmProcess

pytestmark = [pytest.mark.broker, pytest.mark.durable_broker, pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 3


def worker(settings: KafkaSettings, rules: Path, log: Path) -> subprocess.Popen[bytes]:
    """A worker with a rules file; it logs to `log`."""
    with log.open("ab") as told:
        return WarmProcess(
            [sys.executable, "-m", "trustfold", "worker", "--rules", str(rules)],
            env=environment(settings),
            stderr=told,
        )


def took_partitions(log: Path) -> int:
    """How often the workers of a log have taken an assignment."""
    return log.read_text().count("ready in generation")


def write_rules(path: Path, threshold: int) -> None:
    """A file of rules that escalate after so many failures."""
    path.write_text(f"[trust.default_rule]\ncount_threshold = {threshold}\n", encoding="utf-8")


def saved(number: int, workspace: int, threshold: int) -> bytes:
    """A workspace's own threshold."""
    return orjson.dumps(
        {
            "type": "settings.changed",
            "schema_version": "1.0",
            "id": f"set-{number}",
            "time": "2026-01-05T10:00:00Z",
            "scope": f"workspace:workspace-{workspace}",
            "overrides": {"rules": {"trust": {"default_rule": {"count_threshold": threshold}}}},
        }
    )


def save(settings: KafkaSettings, record: bytes) -> None:
    """Publish one record of settings."""
    scope = orjson.loads(record)["scope"]
    asyncio.run(write(settings, [OutgoingRecord(settings.topic("settings"), scope.encode(), record)]))


def all_folded(settings: KafkaSettings) -> bool:
    """Whether the workers have committed everything."""
    return sum(group.records for group in asyncio.run(group_lags(settings)) if group.role == "worker") == 0


def test_what_was_decided_is_decided_again_by_the_rules_of_its_place(
    broker: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    """Files and settings change at any moment, two workers are killed and started with other files, under load."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=PARTITIONS)
    chance = Random(5)
    events = [value for _, value in busy_agents(24, 40)]
    asyncio.run(prepare(settings, []))
    files = [tmp_path / "a.toml", tmp_path / "b.toml"]
    for file in files:
        write_rules(file, 3)
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    workers = [worker(settings, file, log) for file, log in zip(files, logs, strict=True)]
    taken = [0, 0]
    try:
        size = len(events) // 8 + 1
        for number in range(8):
            asyncio.run(publish(settings, events[number * size : (number + 1) * size]))
            time.sleep(chance.random())
            which = number % 2
            log, before = logs[which], taken[which]
            wait_until(lambda: took_partitions(log) > before, what="the worker has its partitions")  # noqa: B023
            if number in {2, 5}:
                workers[which].send_signal(signal.SIGKILL)
                workers[which].wait()
                taken[which] = took_partitions(log)
                write_rules(files[which], chance.randrange(2, 7))
                workers[which] = worker(settings, files[which], log)
            elif number == 4:
                assert stop_worker(workers[which]) == 0
                taken[which] = took_partitions(log)
                write_rules(files[which], chance.randrange(2, 7))
                workers[which] = worker(settings, files[which], log)
            else:
                save(settings, saved(number, number, chance.randrange(2, 7)))
                write_rules(files[which], chance.randrange(2, 7))
        wait_until(lambda: all_folded(settings), timeout=90, what="everything is folded")
        assert [one.poll() for one in workers] == [None, None], logs[0].read_text()[-2000:]
    finally:
        for one in workers:
            stop_worker(one)
    root = tmp_path / "history"
    recorder = [sys.executable, "-m", "trustfold", "record", "--history", str(root), "--once"]
    subprocess.run(recorder, env=environment(settings), check=True, timeout=120)
    found = compared(root, RuleSet())
    assert found.versions > 3
    assert found.recorded.count > 100
    assert found.recorded.again == found.recorded.count
    assert "were folded by other rules" in "".join(log.read_text() for log in logs)
    places = rows(root, "SELECT DISTINCT source_topic, source_partition FROM recorded_rules ORDER BY ALL")
    assert len(places) == 4 * PARTITIONS
    assert rows(root, "SELECT count(*) FROM recorded_rules WHERE record LIKE '%\"settings\":%'")[0][0] > 0
