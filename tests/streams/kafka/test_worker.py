"""The worker process: how it starts, ends, and what it says."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.errors import NodeNotReadyError
from broker_kit import Broker
from lane_harness import SCRIPT, LaneHarness, event, events
from probing import free_port, get, status
from trustfold.streams.kafka.settings import KafkaSettings
from trustfold.streams.kafka.topics import create_topics
from trustfold.streams.kafka.worker import run_worker
from waiting import wait_until


@pytest.fixture
def lane(broker: Broker, topic_prefix: str, tmp_path: Path) -> Iterator[LaneHarness]:
    """Topics and workers of one test."""
    with LaneHarness(broker.bootstrap, topic_prefix, tmp_path) as harness:
        yield harness


def test_no_broker_no_start(tmp_path: Path) -> None:
    """Without a broker the worker ends at once with 2 and names the address."""
    lane = LaneHarness("127.0.0.1:1", "x.", tmp_path)
    worker = lane.start()
    assert worker.process.wait(30) == 2
    assert "no broker answers at 127.0.0.1:1" in worker.text()


def test_a_broker_that_goes_away_in_the_check_of_the_topics_no_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker ends with 2 and one line, not with a traceback."""

    async def lost(*_: object) -> None:
        raise NodeNotReadyError("node id 1")

    monkeypatch.setattr("trustfold.streams.kafka.worker.check_topics", lost)
    monkeypatch.setattr("trustfold.streams.kafka.worker.start_log", lambda *_: None)
    assert run_worker(KafkaSettings(), object()) == 2
    assert "not started: the brokers became unavailable while the topics were checked" in caplog.messages[-1]


@pytest.mark.parametrize("command", [["-m", "trustfold", "worker"], [str(SCRIPT)]], ids=["command", "function"])
def test_probes_and_signals_are_answered_while_the_topics_are_checked(command: list[str], tmp_path: Path) -> None:
    """A broker that accepts connections and is silent: the worker is alive, says why it is not ready, and can stop."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        lane = LaneHarness(f"127.0.0.1:{silent.getsockname()[1]}", "x.", tmp_path, TRUSTFOLD_WEB_PORT=str(port))
        with subprocess.Popen([sys.executable, *command], env=lane.environ, stderr=subprocess.PIPE) as process:
            try:
                waiting = (503, "the topics are being checked")
                wait_until(
                    lambda: status(port, "/readyz") == waiting or process.poll() is not None,
                    timeout=30,
                    what=lambda: str(get(port, "/readyz")),
                )
                assert process.poll() is None
                assert status(port, "/healthz") == (200, "ok")
                process.terminate()
                _, said = process.communicate(timeout=30)
            finally:
                process.kill()
    assert process.returncode == 0, said
    assert b"Traceback" not in said


@pytest.mark.durable_broker
def test_topics_that_do_not_fit_no_start(lane: LaneHarness) -> None:
    """A wrong partition count ends the worker with 2 before it joins the group."""
    worker = lane.start(TRUSTFOLD_PARTITIONS="5")
    assert worker.process.wait(30) == 2
    assert "partitions is 4, should be 5" in worker.text()


@pytest.mark.durable_broker
def test_stopping_at_any_moment_ends_well(lane: LaneHarness) -> None:
    """SIGTERM before the first assignment, and SIGINT in the middle of the work, both end with 0."""
    lane.publish(events(5_000))
    early = lane.start()
    wait_until(lambda: "starting" in early.text(), timeout=20, what="the first line of the log")
    assert early.stop() == 0, early.text()
    late = lane.start().ready()
    late.process.send_signal(signal.SIGINT)
    assert late.process.wait(30) == 0, late.text()
    assert "Traceback" not in early.text() + late.text()


@pytest.mark.durable_broker
def test_faust_own_command_finds_the_app(lane: LaneHarness) -> None:
    """`faust -A trustfold.streams.kafka.app worker` runs an app made from the environment."""
    asyncio.run(create_topics(lane.settings))  # the harness has made those of its own, smaller topology
    environ = lane.environ | {"TRUSTFOLD_LOG_LEVEL": "INFO"}
    command = [
        sys.executable,
        "-m",
        "faust",
        "-A",
        "trustfold.streams.kafka.app",
        "worker",
        "-l",
        "info",
        "--without-web",
    ]
    log = lane.path / "faust.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environ, stdout=out, stderr=subprocess.STDOUT, cwd=lane.path)
    try:
        wait_until(
            lambda: "ready in generation" in log.read_text(errors="replace") or process.poll() is not None,
            timeout=30,
            what=lambda: log.read_text(errors="replace")[-3000:],
        )
        process.terminate()
        assert process.wait(30) == 0, log.read_text(errors="replace")[-3000:]
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.durable_broker
@pytest.mark.parametrize("more", [0, 120], ids=["shorter", "longer"])
def test_a_topic_created_anew_is_refused(lane: LaneHarness, more: int) -> None:
    """However long the new log is, the worker says so and stops, instead of passing its records over."""
    lane.publish([(b"s", event(n, "s", "t")) for n in range(50)])
    worker = lane.start()
    lane.settled()
    assert worker.stop() == 0, worker.text()
    lane.recreate("events")
    lane.publish([(b"s", event(n, "s", "t")) for n in range(more)])
    again = lane.start()
    assert again.process.wait(30) == 1, again.text()
    last = again.text().splitlines()[-1]
    assert f"{lane.settings.topic('events')} was deleted and created again while no worker ran" in last
    assert "TRUSTFOLD_APP_ID" in last


def test_the_package_does_not_start_an_app_by_being_imported() -> None:
    """Importing the module reads no environment; the app is made when somebody asks for it."""
    code = (
        "import os; os.environ['TRUSTFOLD_PARTITIONS'] = 'nonsense'\n"
        "import trustfold.streams.kafka.app as module\n"
        "assert 'app' not in vars(module)\n"
        "try: module.app\n"
        "except Exception as error: print(type(error).__name__)"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "ConfigError", done.stderr
