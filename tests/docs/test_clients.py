"""Programs of docs/clients in other languages: they publish to a real worker and follow what it decides.

Java needs a JDK, Node KafkaJS (`npm install kafkajs`), Go its modules (`go mod download`).
"""

from __future__ import annotations

import asyncio
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.partitioner import DefaultPartitioner
from broker_kit import Broker
from kafka_run import log_of, settings_for, start_worker, stop_worker
from local_kafka_jars import home
from local_kafka_node import SHORT_LIVED
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.topics import create_topics
from waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.durable_broker, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "docs" / "clients"
PARTITIONS = 4
LANGUAGES = ("node", "java", "go")
FAILURES = 3
(QUICK,) = SHORT_LIVED


def node(program: str, folder: Path) -> list[str]:
    """Command that starts a program of Node: a copy beside the packages that NODE_PATH or the checkout has."""
    for packages in [*os.environ.get("NODE_PATH", "").split(os.pathsep), str(ROOT / "node_modules")]:
        if packages and (Path(packages) / "kafkajs").exists():
            copy = shutil.copy(CLIENTS / f"{program}.mjs", folder)
            (folder / "node_modules").symlink_to(packages)
            return ["node", copy]
    pytest.skip("no KafkaJS: npm install --no-save --no-package-lock kafkajs")


def java(program: str, folder: Path) -> list[str]:
    """Command that starts a program of Java, compiled here."""
    if shutil.which("javac") is None:
        pytest.skip("no JDK: apt-get install openjdk-17-jdk-headless")
    libraries, source = home() / "libs" / "*", CLIENTS / f"{program.title()}.java"
    compiler = ["javac", f"-J{QUICK}", "--class-path", str(libraries), "-d", folder, source]
    subprocess.run(compiler, timeout=240, check=True)
    return ["java", QUICK, "--class-path", f"{libraries}:{folder}", program.title()]


def go(program: str, folder: Path) -> list[str]:
    """Command that starts a program of Go, compiled here."""
    if shutil.which("go") is None:
        pytest.skip("no Go: https://go.dev/doc/install")
    built = folder / program
    done = subprocess.run(
        ["go", "build", "-mod=readonly", "-o", built, f"./{program}"],
        cwd=CLIENTS / "go", capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "dial tcp" in done.stderr or "missing go.sum entry" in done.stderr:
        pytest.skip("the modules of Go cannot be read here")
    assert done.returncode == 0, done.stderr
    return [str(built)]


STARTS = {"node": node, "java": java, "go": go}


@pytest.fixture(scope="module")
def settings(broker: Broker) -> Iterator[KafkaSettings]:
    """A deployment with a worker, and sessions of other programs in four partitions."""
    settings = settings_for(broker.bootstrap, "other-languages", partitions=PARTITIONS)
    asyncio.run(create_topics(settings))
    worker = start_worker(settings)
    yield settings
    stop_worker(worker)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_session_is_published_and_its_decision_followed(
    settings: KafkaSettings, language: str, tmp_path: Path
) -> None:
    """Three calls fail; the events lie where other clients put that session, and the follower tells the person."""
    session = f"session-of-{language}"
    for folder in ("publish", "follow"):
        (tmp_path / folder).mkdir()
    publish = STARTS[language]("publish", tmp_path / "publish")
    follow = STARTS[language]("follow", tmp_path / "follow")
    for _ in range(FAILURES):
        done = subprocess.run(
            [*publish, settings.bootstrap, settings.topic("events"), session], capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    expected = DefaultPartitioner()(session.encode(), list(range(PARTITIONS)), list(range(PARTITIONS)))
    found = [partition for partition, _, key in log_of(settings) if key == session]
    assert found == [expected] * 2 * FAILURES
    topics = [settings.topic("nudges"), settings.topic("escalations")]
    follower = subprocess.Popen(
        [*follow, settings.bootstrap, f"follower-in-{language}", *topics],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert follower.stdout is not None
    said: queue.Queue[str] = queue.Queue()
    reading = threading.Thread(target=lambda lines: [said.put(line) for line in lines], args=(follower.stdout,))
    reading.start()
    try:
        told: list[str] = []

        def heard() -> bool:
            while not said.empty():
                told.append(said.get())
            return any("fetch_invoice" in line for line in told)

        wait_until(heard, what=lambda: f"the follower said {told}")
    finally:
        follower.kill()
        follower.wait()
        reading.join()
        follower.stdout.close()
