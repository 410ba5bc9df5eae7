"""Health and metrics of `trustfold record`: what probes read while it records, waits and has no room."""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from broker_kit import Broker
from busy_agents import busy_agents
from command_line import serving
from kafka_run import environment, prepare, settings_for
from local_kafka import LocalKafka
from paused_broker import paused
from probing import check_with_promtool, free_port, get, samples, status
from recorded import ARRIVED, small_event
from trustfold.history import parquet
from trustfold.history.history_error import HistoryFull
from trustfold.history.recorder import PartitionRecorder
from trustfold.recording.status import UNWRITTEN_S, RecordingStatus
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from waiting import wait_until
from warm_process import WarmProcess


@contextmanager
def recording(port: int, *words: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that records and serves its health; killed in the end if it still runs."""
    command = [sys.executable, "-m", "trustfold", "record", *words, "--flush", "0.1"]
    with WarmProcess(
        command, env=(env or environment(KafkaSettings())) | {"TRUSTFOLD_WEB_PORT": str(port)}, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def send(settings: KafkaSettings, value: bytes) -> None:
    """Write a record that no publisher of ours would."""
    async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap) as producer:
        await producer.send_and_wait(settings.topic("events"), value)


def ready(port: int) -> None:
    """Wait until it records."""
    wait_until(lambda: status(port, "/readyz") == (200, "ok"), what=lambda: str(get(port, "/readyz")))


@pytest.fixture
def described(tmp_path: Path) -> Iterator[tuple[PartitionRecorder, RecordingStatus]]:
    """A recorder with a clock of its own that has one partition, and the status of its recording."""
    recorder = PartitionRecorder(tmp_path, clock=lambda: ARRIVED / 1000)
    recorder.own("events", 0)
    status = RecordingStatus(recorder)
    status.assigned = 1
    yield recorder, status
    recorder.close()


def test_a_full_disk_shows_until_there_is_room(
    described: tuple[PartitionRecorder, RecordingStatus], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alive, for a restart makes no room, but not ready."""
    recorder, status = described
    recorder.add("events", 0, 0, ARRIVED, b"s1", small_event(0))

    def no_room(_made: Path, _target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(parquet, "put_in_place", no_room)
        with pytest.raises(HistoryFull):
            recorder.flush()
    assert (status.alive(), status.ready(), status.state) == ("", "the disk is full", "full")
    assert (recorder.counts.flush_failures, recorder.counts.flushes) == (1, 0)
    recorder.flush()
    assert (status.ready(), status.state) == ("", "recording")
    assert recorder.counts.records == recorder.counts.files == {"events": 1}
    assert (recorder.counts.flush_failures, recorder.counts.flushes) == (1, 1)


def test_rows_that_are_not_written_in_time_show(described: tuple[PartitionRecorder, RecordingStatus]) -> None:
    """The age of the oldest waiting row is what operators watch; nothing waits in a quiet log."""
    recorder, status = described
    now = ARRIVED / 1000
    recorder._clock = lambda: now
    assert recorder.waiting_s == 0
    recorder.add("events", 0, 0, ARRIVED, b"s1", small_event(0))
    now += recorder.flush_s + UNWRITTEN_S + 1
    assert status.ready() == "files are not written"
    recorder.flush()
    assert (recorder.waiting_s, status.ready()) == (0, "")


def test_a_recording_that_ended_or_hangs_is_not_alive(described: tuple[PartitionRecorder, RecordingStatus]) -> None:
    """A restart helps."""
    _, status = described
    status.turned_at -= status.stuck_s + 1
    assert status.alive() == status.ready() == "the loop is stuck"
    status.failure = "the topic is gone"
    assert status.alive() == "failed: the topic is gone"


@pytest.mark.slow
def test_a_recorder_of_a_store_serves_health_and_metrics(tmp_path: Path) -> None:
    """Records, files and lag; promtool finds nothing to complain about."""
    store, port = tmp_path / "store.sqlite", free_port()
    with EmbeddedEngine.open(store, RuleSet()) as engine:
        engine.ingest([small_event(number) for number in range(20)])
    with recording(port, "--store", str(store), "--history", str(tmp_path / "history")) as process:
        ready(port)
        written = ("trustfold_recorded_records_total", "events")
        wait_until(lambda: samples(port).get(written) == 20, what=lambda: get(port, "/metrics")[1])
        wait_until(lambda: samples(port)["trustfold_recorder_lag_records", "0", "log"] == 0, what="no lag is left")
        found, text = samples(port), get(port, "/metrics")[1]
        assert found["trustfold_recorder_state", "recording"] == 1
        assert found["trustfold_recorded_files_total", "events"] >= 1
        assert found["trustfold_recorder_disk_free_bytes",] > 0
        assert found["process_resident_memory_bytes",] > 1_000_000
        assert "trustfold_broker_up" not in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    check_with_promtool(text)


def test_up_tells_of_its_recording(tmp_path: Path) -> None:
    """At its own metrics, also when the recording has ended and nobody saw the line that said so."""
    with serving("up", "--port", "0", "--history", tmp_path / "history", cwd=tmp_path) as up:

        def told() -> str:
            return up.request("GET", "/metrics")[1].decode()

        recording = 'trustfold_recorder_state{state="recording"} 1.0'
        wait_until(lambda: recording in told(), what=told)
        check_with_promtool(told())
        assert up.stop() == 0


@pytest.mark.slow
@pytest.mark.durable_broker
def test_metrics_of_a_running_recorder(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """Records, lag of each partition, files, what cannot be read, and the brokers; promtool is content."""
    settings, port = settings_for(broker.bootstrap, topic_prefix, partitions=2), free_port()
    events = busy_agents(10, 20)
    asyncio.run(prepare(settings, events))
    asyncio.run(send(settings, b"{"))
    words = ("--bootstrap", settings.bootstrap, "--history", str(tmp_path / "history"))
    with recording(port, *words, env=environment(settings)) as process:
        ready(port)
        written = ("trustfold_recorded_records_total", "events")
        lags = [("trustfold_recorder_lag_records", str(number), "events") for number in range(2)]
        wait_until(
            lambda: [samples(port).get(one) for one in (written, *lags)] == [len(events) + 1, 0, 0],
            what=lambda: get(port, "/metrics")[1],
        )
        found, text = samples(port), get(port, "/metrics")[1]
        assert found["trustfold_unreadable_records_total", "not_json"] == 1
        assert found["trustfold_recorded_bytes_total", "events"] > 1_000
        assert found["trustfold_recorder_state", "recording"] == found["trustfold_broker_up",] == 1
        assert found["trustfold_recorder_flush_age_seconds",] == found["trustfold_flush_failures_total",] == 0
        assert found["trustfold_assigned_partitions",] > 2
        assert found["trustfold_rebalances_total",] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    check_with_promtool(text)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_recorder_without_a_broker_says_so_and_still_stops(
    own_kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    """Alive but not ready while the broker is silent, ready again after it, and SIGTERM ends it."""
    settings, port = settings_for(own_kafka.bootstrap, topic_prefix), free_port()
    events = busy_agents(2, 20)
    asyncio.run(prepare(settings, events[:20]))
    words = ("--bootstrap", settings.bootstrap, "--history", str(tmp_path / "history"))
    with recording(port, *words, env=environment(settings)) as process:
        ready(port)
        for ended in (False, True):
            with paused(own_kafka):
                wait_until(
                    lambda: status(port, "/readyz") == (503, "no broker answers"),
                    what=lambda: str(get(port, "/readyz")),
                )
                assert samples(port)["trustfold_broker_up",] == 0
                assert status(port, "/healthz")[0] == 200
                if ended:
                    began = time.monotonic()
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(60) == 0
                    assert time.monotonic() - began < 30
            if not ended:
                ready(port)
