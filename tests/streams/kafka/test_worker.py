"""The worker process: how it starts, ends, and what it says."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_kit import Broker
from lane_harness import SCRIPT, LaneHarness, event, events
from probing import free_port, get, status
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
    assert worker.ended() == 2
    assert "no broker answers at 127.0.0.1:1" in worker.text()


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
                    what=lambda: str(get(port, "/readyz")),
                )
                assert process.poll() is None
                assert status(port, "/healthz") == (200, "ok")
                process.terminate()
                _, said = process.communicate(timeout=60)
            finally:
                process.kill()
    assert process.returncode == 0, said
    assert b"Traceback" not in said


@pytest.mark.durable_broker
def test_topics_that_do_not_fit_no_start(lane: LaneHarness) -> None:
    """A wrong partition count ends the worker with 2 before it joins the group."""
    worker = lane.start(TRUSTFOLD_PARTITIONS="5")
    assert worker.ended() == 2
    assert "partitions is 4, should be 5" in worker.text()


@pytest.mark.durable_broker
def test_stopping_at_any_moment_ends_well(lane: LaneHarness) -> None:
    """SIGTERM before the first assignment, and SIGINT in the middle of the work, both end with 0."""
    lane.publish(events(5_000))
    early = lane.start()
    wait_until(lambda: "starting" in early.text(), what="the first line of the log")
    assert early.stop() == 0, early.text()
    late = lane.start().ready()
    late.process.send_signal(signal.SIGINT)
    assert late.ended() == 0, late.text()
    assert "Traceback" not in early.text() + late.text()


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
    assert again.ended() == 1, again.text()
    last = again.text().splitlines()[-1]
    assert f"{lane.settings.topic('events')} was deleted and created again while no worker ran" in last
    assert "TRUSTFOLD_APP_ID" in last
