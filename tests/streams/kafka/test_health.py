"""Health, metrics and logs of a worker: they tell the truth, to probes, to Prometheus and to people."""

import asyncio
import http.client
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError
from broker_kit import Broker
from crowd import await_end, held
from lane_harness import LaneHarness, event, events
from probing import check_with_promtool, free_port, get, samples, status
from trustfold.errors import ConfigError
from trustfold.streams import probe_server
from trustfold.streams.kafka import health
from trustfold.streams.kafka.app import make_app
from trustfold.streams.kafka.backpressure import PartitionTenure
from trustfold.streams.kafka.engine import WorkerEngine, _reason
from trustfold.streams.kafka.health import STUCK_S, alive, probe_of, ready
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.logs import ClientNoise, JsonFormatter
from trustfold.streams.kafka.metrics import BoundedHistogram, LaneMetrics
from trustfold.streams.kafka.monitor import STALLED_S, EngineMonitor
from trustfold.streams.kafka.stages import KafkaTopology
from trustfold.streams.probe_server import ProbeServer
from waiting import wait_until


@pytest.fixture
def engine() -> WorkerEngine:
    """An engine that folds one partition."""
    made = WorkerEngine(KafkaSettings(), None, KafkaTopology((), lambda *_: None), LaneMetrics())
    made._tenure = PartitionTenure(1, 1)
    made.metrics.assigned = 1
    made.watch.answered_at = time.monotonic()
    return made


def test_a_worker_that_folds_is_alive_and_ready(engine: WorkerEngine) -> None:
    """No reason against it."""
    assert (alive(engine), ready(engine)) == ("", "")


def test_a_worker_that_waits_is_alive_but_not_ready(engine: WorkerEngine) -> None:
    """A restart would help nobody: not for a broker, a leader, a rebalance or the lack of partitions."""
    engine.watch.lost_since = 1.0
    assert (alive(engine), ready(engine)) == ("", "no broker answers")
    engine.watch.lost_since = None
    engine.watch.leaderless = {"trustfold.events": [1]}
    assert (alive(engine), ready(engine)) == ("", "no leader for partitions of trustfold.events")
    engine.watch.leaderless = {}
    engine.durable_at -= 60
    assert (alive(engine), ready(engine)) == ("", "checkpoints do not move")
    engine.metrics.assigned = 0
    assert ready(engine).startswith("no partitions")
    engine._tenure = None
    assert (alive(engine), ready(engine)) == ("", "starting")


def test_a_worker_that_cannot_go_on_is_not_alive(engine: WorkerEngine) -> None:
    """It has failed, or its event loop stands still."""
    engine.turned_at -= STUCK_S + 1
    assert alive(engine) == ready(engine) == "the event loop is stuck"
    engine.failed, engine.reason = True, "topic x is gone"
    assert alive(engine) == "failed: topic x is gone"


def test_a_probe_before_the_start_does_not_make_what_the_start_makes() -> None:
    """Faust makes its services at their first use, for the thread that uses them; one of a probe's never starts."""

    async def probed() -> bool:
        app = make_app(KafkaSettings())
        await asyncio.to_thread(lambda: [health.body(app.engine, ready(app.engine)), app.engine.state])
        return app.tables.loop is asyncio.get_running_loop()

    assert asyncio.run(probed())


def test_a_port_that_is_taken_is_a_fault_of_the_settings(engine: WorkerEngine) -> None:
    """The worker does not start without the health that was asked for."""
    port = free_port()
    server = ProbeServer(probe_of(engine), "127.0.0.1", port)
    try:
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            ProbeServer(probe_of(engine), "127.0.0.1", port)
        assert status(port, "/readyz") == (200, "ok")
        assert get(port, "/elsewhere")[0] == 404
    finally:
        server.close()


def test_half_requests_do_not_keep_a_probe_from_its_answer(
    engine: WorkerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,500 connections without a whole request few are kept, none for long, and no thread stays behind."""
    monkeypatch.setattr(probe_server, "REQUEST_S", 1.0)
    threads, port = threading.active_count(), free_port()
    server = ProbeServer(probe_of(engine), "127.0.0.1", port)
    try:
        with held(("127.0.0.1", port)) as connections:
            assert threading.active_count() <= threads + 1 + 2 * probe_server.MAX_OPEN
            assert status(port, "/healthz") == (200, "ok")
            await_end(connections)
        wait_until(lambda: threading.active_count() <= threads + 1, what="the threads of the connections")
    finally:
        server.close()


def test_a_request_that_drips_is_cut(engine: WorkerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep a connection."""
    monkeypatch.setattr(probe_server, "REQUEST_S", 1.0)
    port = free_port()
    server = ProbeServer(probe_of(engine), "127.0.0.1", port)
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.settimeout(0.2)

            def is_cut() -> bool:
                try:
                    connection.sendall(b"a")
                    return connection.recv(100) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True

            wait_until(is_cut, what="the end of a connection that drips")
    finally:
        server.close()


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
@pytest.mark.parametrize(
    ("bind", "headers", "code"),
    [
        ("127.0.0.1", {"Host": "localhost"}, 200),
        ("127.0.0.1", {"Host": "[::1]:80"}, 200),
        ("127.0.0.1", {"Host": "evil.example"}, 421),
        ("127.0.0.1", {"Host": "localhost", "Origin": "https://evil.example"}, 403),
        ("127.0.0.1", {"Host": "localhost", "Origin": "null"}, 403),
        ("0.0.0.0", {"Host": "worker-1:8080"}, 200),
        ("0.0.0.0", {"Host": "worker-1:8080", "Origin": "https://evil.example"}, 403),
    ],
)
def test_pages_of_other_sites_read_nothing(
    engine: WorkerEngine, bind: str, headers: dict[str, str], code: int, path: str
) -> None:
    """A local port answers requests to this machine's own names alone; no port answers pages of another site."""
    port = free_port()
    server = ProbeServer(probe_of(engine), bind, port)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        assert connection.getresponse().status == code
    finally:
        connection.close()
        server.close()


def test_a_histogram_counts_by_upper_bound() -> None:
    """A value at a bound belongs to it."""
    histogram = BoundedHistogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value, 2)
    assert (histogram.counts, histogram.total) == ([4, 2, 2], 24.0)


def test_the_reason_of_a_dead_letter_is_a_known_label() -> None:
    """What others write there does not become a label."""
    assert _reason(b'{"reason": "not_json"}') == "not_json"
    assert _reason(b'{"reason": "my own, number 7"}') == _reason(b"[]") == _reason(None) == "other"


def test_what_happens_again_and_again_is_reported_once(engine: WorkerEngine, caplog: pytest.LogCaptureFixture) -> None:
    """The first of a kind, with what to do."""
    monitor = EngineMonitor(engine, SimpleNamespace())
    for _ in range(3):
        engine.metrics.folds["clamped"] += 5
        engine.metrics.dead_letter_reasons["not_json"] += 1
        monitor._look_at_counts()
    assert [record.message for record in caplog.records] == [
        "1 records became dead letters (not_json); `trustfold dead-letters list` shows them",
        "5 event times ran more than a minute ahead of their records and were cut: look at the publishers' clocks",
    ]


def test_a_checkpoint_that_is_not_acknowledged_is_reported_after_ten_seconds(
    engine: WorkerEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted from its beginning; once, then every minute."""
    monitor = EngineMonitor(engine, SimpleNamespace())
    for age_s, told in ((9.0, 0), (11.0, 1), (12.0, 1)):
        engine.checkpointer.began_at = time.monotonic() - age_s
        monitor._look_at_waits()
        assert len([text for text in caplog.messages if "do not acknowledge" in text]) == told


@pytest.mark.parametrize(("reason", "ends"), [("", True), ("stage", True), ("workers", False)])
async def test_a_worker_without_progress_ends_unless_it_waits_for_another(
    engine: WorkerEngine, monkeypatch: pytest.MonkeyPatch, reason: str, *, ends: bool
) -> None:
    """Over a backlog it may wait long for one that catches up; to start it again would not help."""
    monkeypatch.setattr(engine, "on_failure", lambda: None)
    engine.metrics.lag = {("events", 0): 5}
    engine.order.held = reason
    monitor = EngineMonitor(engine, SimpleNamespace())
    monitor._progress = {}, time.monotonic() - 2 * STALLED_S
    await monitor._look_at_progress()
    assert engine.failed is ends


def test_a_long_recovery_says_what_it_waits_for(
    engine: WorkerEngine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators look at the changelogs or at the group's coordinator, not at both."""
    monkeypatch.setattr("trustfold.streams.kafka.monitor.PATIENCE_S", 0.0)
    engine.recovery_step = "reading the consumer group's offsets"
    EngineMonitor(engine, SimpleNamespace())._look_at_waits()
    assert [text.partition(" (for")[0] for text in caplog.messages] == [
        "recovering: reading the consumer group's offsets; 0 changelog records read so far"
    ]


@pytest.mark.parametrize(
    ("name", "error", "shown"),
    [
        ("aiokafka.conn", None, False),
        ("aiokafka.consumer.fetcher", ValueError("x"), True),
        ("asyncio", KafkaConnectionError(), False),
        ("asyncio", ValueError("x"), True),
        ("trustfold.streams.kafka.engine", None, True),
    ],
)
def test_attempts_of_the_client_are_left_out_and_faults_are_not(
    name: str, error: Exception | None, shown: bool
) -> None:
    """The broker watch reports an outage; the client's own lines repeat it many times a second."""
    info = (type(error), error, None) if error else None
    record = logging.LogRecord(name, logging.ERROR, "", 0, "no", None, info)
    assert ClientNoise().filter(record) is shown


def test_the_client_says_the_same_once_a_minute() -> None:
    """Other lines of the libraries are shown, but not again and again."""
    noise = ClientNoise()
    record = logging.LogRecord("faust.x", logging.WARNING, "", 0, "again %s", (1,), None)
    assert [noise.filter(record) for _ in range(3)] == [True, False, False]


def test_a_line_as_json() -> None:
    """One object, the error with its stack."""
    try:
        raise ValueError("no")  # noqa: TRY301 - for its traceback
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "said %d", (1,), sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["logger"], line["message"], line["error"]) == (
        "ERROR",
        "x",
        "said 1",
        "ValueError('no')",
    )
    assert "test_a_line_as_json" in line["stack"]


@pytest.fixture
def lane(broker: Broker, topic_prefix: str, tmp_path: Path) -> Iterator[LaneHarness]:
    """Topics and workers of one test."""
    with LaneHarness(broker.bootstrap, topic_prefix, tmp_path) as harness:
        yield harness


@pytest.mark.durable_broker
def test_metrics_of_a_running_worker(lane: LaneHarness) -> None:
    """Prometheus finds lag, ages, latencies, dead letters and sizes, and promtool finds nothing to complain about."""
    port = free_port()
    lane.publish([*events(500), (b"bad", b"{"), (b"s", event(9_999, "s", "t"))])
    worker = lane.start(TRUSTFOLD_WEB_PORT=str(port), TRUSTFOLD_LOG_FORMAT="json")
    lane.settled()
    wait_until(lambda: status(port, "/readyz") == (200, "ok"), what=lambda: str(status(port, "/readyz")))
    lag = ("trustfold_consumer_lag_records", "0", "events")
    wait_until(lambda: samples(port).get(lag) == 0, what=lambda: get(port, "/metrics")[1])
    found = samples(port)
    assert found["trustfold_records_total", "events"] == 502
    assert found["trustfold_dead_letters_total", "other"] == 1
    assert found["trustfold_worker_state", "running"] == found["trustfold_broker_up",] == 1
    assert found["trustfold_checkpoint_age_seconds",] < 5
    assert found["trustfold_fold_seconds_count",] == 502 + 501
    assert found["trustfold_states", "session"] > 100
    assert found["trustfold_event_to_decision_seconds_count",] > 0
    wait_until(lambda: "records became dead letters" in worker.text(), what=worker.text)
    text = get(port, "/metrics")[1]
    assert worker.stop() == 0
    assert all(json.loads(line)["level"] for line in worker.text().splitlines())
    check_with_promtool(text)
