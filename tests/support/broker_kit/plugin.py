"""The fixtures `broker`, `own_kafka` and `topic_prefix`, and the line that says which broker it was.

tests/conftest.py loads this. The markers are declared in pyproject.toml.
"""

import asyncio
import contextlib
import dataclasses
import fcntl
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from local_kafka import KafkaUnavailable, LocalKafka, prepare
from local_kafka_jars import KafkaInstallation
from local_kafka_node import SHORT_LIVED

from .ways import GIVEN_VARIABLE, Broker, NoBroker, delete_topics, open_broker, required

OPENED = pytest.StashKey[Broker]()
REPORTS = pytest.StashKey[dict[str, None]]()
RECORDED = ("bootstrap", "kind", "description", "passed_over")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that asks for a broker, so that `-m "not broker"` leaves them all out."""
    for item in items:
        names = getattr(item, "fixturenames", [])
        durable = item.get_closest_marker("durable_broker")
        if durable and not {"kafka_jars", "_durable_broker"} & {*names}:
            names.insert(0, "_durable_broker")
        if "broker" in names or "kafka_jars" in names or durable:
            item.add_marker("broker")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take from a process of a parallel run which broker it had; a process that crashed tells nothing."""
    if report := getattr(node, "workeroutput", {}).get("broker"):
        node.config.stash.setdefault(REPORTS, {})[report] = None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which broker the tests ran on, and why on no better one."""
    if reports := config.stash.get(REPORTS, {}):
        terminalreporter.section("broker")
        terminalreporter.line("\n".join(reports))


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """A Kafka broker for all tests of the run, started when the first one asks; `kind` says which (ways.py).

    The processes of a parallel run share it. Use `topic_prefix` for topic names, and do not stop this broker: that
    is what `own_kafka` is for.
    """
    config = request.config
    worker = getattr(config, "workeroutput", None)
    try:
        start = partial(open_broker, _teller(config))
        opened = start() if worker is None else _shared(tmp_path_factory.getbasetemp().parent, start)
    except NoBroker as error:
        # One that was named and does not answer is an error as well: skipping would hide it.
        raise _absence(str(error), fails=required() or bool(os.environ.get(GIVEN_VARIABLE))) from None
    config.stash[OPENED] = opened
    config.add_cleanup(opened.close)  # not in the last test's time: this may wait for the other processes
    report = "\n  not ".join([f"{opened.kind}: {opened.description}", *opened.passed_over])
    config.stash[REPORTS] = {report: None}
    if worker is not None:
        worker["broker"] = report
    return opened


def _shared(folder: Path, start: Callable[[], Broker]) -> Broker:
    """Give the broker that another process has recorded in `folder`, or start one and record it.

    Every user holds a shared lock from here to `close()`, where the process that started the broker waits for the
    others. Locks end with their process, however that ends. The mock lives inside of one process, so that each has
    its own. What `start` raises passes through, and the next process tries again.
    """
    record = folder / "broker.json"
    with (folder / "broker.turn").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        mine = not record.exists()
        opened = start() if mine else Broker(**json.loads(record.read_text()))
        if not opened.durable:
            return opened
        record.write_text(json.dumps({name: getattr(opened, name) for name in RECORDED}))
        users = (folder / "broker.users").open("a")
        fcntl.flock(users, fcntl.LOCK_SH)

    def close() -> None:
        if mine and not users.closed:
            fcntl.flock(users, fcntl.LOCK_EX)  # when the last of the others has closed
            opened.close()
        users.close()

    return dataclasses.replace(opened, close=close)


@pytest.fixture(scope="session")
def kafka_jars(request: pytest.FixtureRequest) -> KafkaInstallation:
    """What it takes to run a Kafka on this machine: Java and the jars."""
    try:
        return prepare(_teller(request.config))
    except KafkaUnavailable as error:
        raise _absence(f"needs a Kafka of its own: {error}", fails=required()) from None


@pytest.fixture
def own_kafka(kafka_jars: KafkaInstallation) -> Iterator[LocalKafka]:
    """A real Kafka for this test alone, to be stopped, killed and restarted; about three seconds to start."""
    with LocalKafka(java_options=SHORT_LIVED) as kafka:
        yield kafka


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> Iterator[str]:
    """A prefix for this test's topics, groups and application ids; its topics are deleted afterwards.

    The test's name in it helps who looks at the broker; 150 characters of Kafka's 249 are left for the topic.
    """
    readable = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:48]
    prefix = f"{readable}-{uuid.uuid4().hex[:10]}."
    yield prefix
    if (opened := request.config.stash.get(OPENED, None)) is not None:
        with contextlib.suppress(Exception):  # tidiness; a broker in trouble is the next test's to report
            asyncio.run(delete_topics(opened, prefix))


@pytest.fixture
def _durable_broker(request: pytest.FixtureRequest, broker: Broker) -> None:
    """Skip a test marked `durable_broker` where only the mock is to be had."""
    if not broker.durable:
        pytest.skip(f"{request.node.name} needs a broker that keeps its log, and here is only librdkafka's mock")


def _absence(reason: str, *, fails: bool) -> BaseException:
    """What ends a test that needs a broker: a skip, or a failure where a broker is required."""
    return pytest.fail.Exception(reason, pytrace=False) if fails else pytest.skip.Exception(reason)


def _teller(config: pytest.Config) -> Callable[[str], None]:
    """Give a function that tells the person at the terminal what takes so long, past pytest's capture."""

    def say(line: str) -> None:
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{line}", flush=True)

    return say
