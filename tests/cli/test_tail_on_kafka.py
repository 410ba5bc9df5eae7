"""`trustfold tail` to a real broker: each event once, over restarts, a broker that is away, and missing topics."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import orjson
import pytest
from broker_kit import Broker
from command_line import started, trustfold
from local_kafka import LocalKafka
from paused_broker import paused
from session_logs import LOGS
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.records import StoredRecord, read
from waiting import wait_until

pytestmark = pytest.mark.durable_broker


class Told:
    """A running `trustfold tail`, and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines += iter(self.process.stderr.readline, "")

    def says(self, words: str) -> bool:
        """Whether it has said so."""
        return any(words in line for line in list(self.lines))


WHOLE = [orjson.dumps(line) + b"\n" for line in LOGS["codex"]]


@contextmanager
def following(log: Path, env: dict[str, str], cwd: Path) -> Iterator[Told]:
    """`trustfold tail` that follows a log from its beginning; gone when the block is left."""
    with started("tail", log, "--from-start", cwd=cwd, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Told(process)
        finally:
            process.kill()


def deployment(bootstrap: str, prefix: str, state: Path) -> dict[str, str]:
    """Environment of a deployment of its own."""
    return {
        "TRUSTFOLD_BROKER": bootstrap,
        "TRUSTFOLD_TOPIC_PREFIX": f"{prefix}.",
        "TRUSTFOLD_PARTITIONS": "2",
        "XDG_STATE_HOME": str(state),
    }


def published(env: dict[str, str]) -> list[StoredRecord]:
    """Every event on the topic."""
    settings = KafkaSettings.from_env(env)
    return asyncio.run(read(settings, settings.topic("events")))[0]


def ids_of(records: list[StoredRecord]) -> list[str]:
    """Ids of events, sorted."""
    return sorted(orjson.loads(one.value or b"{}")["id"] for one in records)


@pytest.mark.slow
def test_a_growing_log_is_published_once(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """In pieces and at once the same events, each once, in the partition of their session; it says what is missing."""
    env = deployment(broker.bootstrap, topic_prefix, tmp_path / "state")
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(WHOLE[:5]))
    once = ("tail", log, "--once", "--from-start")
    missing = trustfold(*once, cwd=tmp_path, env=env)
    assert missing.returncode == 2
    assert b"trustfold topics create" in missing.stderr
    assert trustfold("topics", "create", cwd=tmp_path, env=env).returncode == 0
    for lines in (WHOLE[:5], WHOLE, WHOLE):
        log.write_bytes(b"".join(lines))
        done = trustfold(*once, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
    records = published(env)
    assert {one.key for one in records} == {orjson.loads(one.value or b"{}")["session_id"] for one in records}
    assert len({one.partition for one in records}) == 1
    again = deployment(broker.bootstrap, topic_prefix, tmp_path / "other-state")
    assert trustfold(*once, cwd=tmp_path, env=again).returncode == 0
    assert ids_of(published(env)) == sorted(2 * ids_of(records))


@pytest.mark.slow
def test_a_broker_that_does_not_answer_is_waited_for(own_kafka: LocalKafka, tmp_path: Path) -> None:
    """Who follows says so and goes on by itself, nothing is lost; who publishes once ends and says why."""
    env = deployment(own_kafka.bootstrap, "away", tmp_path / "state")
    once = ("tail", tmp_path / "log.jsonl", "--once", "--from-start")
    assert trustfold("topics", "create", cwd=tmp_path, env=env).returncode == 0
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(WHOLE[:5]))
    with following(log, env, tmp_path) as tail:
        wait_until(lambda: tail.says("following for"), what="the beginning", every=0.2)
        with paused(own_kafka):
            with log.open("ab") as more:
                more.writelines(WHOLE[5:8])
            other = env | {"XDG_STATE_HOME": str(tmp_path / "other-state")}
            ended = trustfold(*once, cwd=tmp_path, env=other)
            assert ended.returncode == 4, ended.stderr
            wait_until(lambda: tail.says("trying again"), what=lambda: f"{tail.lines}", every=0.2)
        with log.open("ab") as more:
            more.writelines(WHOLE[8:])
        fresh = deployment(own_kafka.bootstrap, "fresh", tmp_path / "state")
        # A broker that has just gone on may not have a place for new topics yet.
        create = partial(trustfold, "topics", "create", cwd=tmp_path, env=fresh)
        wait_until(lambda: create().returncode == 0, what="new topics", every=0.2)
        assert trustfold(*once, cwd=tmp_path, env=fresh | {"XDG_STATE_HOME": str(tmp_path / "third")}).returncode == 0
        wanted = ids_of(published(fresh))
        wait_until(lambda: sorted(set(ids_of(published(env)))) == wanted, timeout=90, what="the rest", every=0.5)
        tail.process.send_signal(signal.SIGINT)
        assert tail.process.wait(60) == 130
