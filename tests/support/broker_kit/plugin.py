"""The fixtures `broker`, `own_kafka` and `topic_prefix`, the markers, and the line that says which it was.

tests/conftest.py loads this. The markers are declared in pyproject.toml.
"""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from local_kafka import KafkaUnavailable, LocalKafka, prepare
from local_kafka_jars import Installation

from .choice import Broker, NoBroker, choose, outlook, required
from .shared import share
from .topics import delete_topics, new_prefix
from .ways import GIVEN_VARIABLE, all_ways

OPENED = pytest.StashKey[Broker]()
OF_WORKERS = pytest.StashKey[list[list[str]]]()


def pytest_report_header() -> str:
    """Say where a broker would come from; nothing is started yet."""
    return f"broker: {outlook(all_ways(os.environ), require=required(os.environ))}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that asks for a broker, so that `-m "not broker"` leaves them all out."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "broker" in names or "kafka_jars" in names or item.get_closest_marker("durable_broker"):
            item.add_marker("broker")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take from a process of a parallel run which broker it had; a process that crashed tells nothing."""
    if (report := getattr(node, "workeroutput", {}).get("broker")) is not None:
        reports = node.config.stash.setdefault(OF_WORKERS, [])
        if report not in reports:
            reports.append(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which broker the tests ran on, and why on no better one."""
    opened = config.stash.get(OPENED, None)
    reports = config.stash.get(OF_WORKERS, []) if opened is None else [_report(opened)]
    if reports:
        terminalreporter.section("broker")
        for line in itertools.chain(*reports):
            terminalreporter.line(line)


def _report(broker: Broker) -> list[str]:
    return [f"{broker.kind}: {broker.description}", *(f"  not {reason}" for reason in broker.passed_over)]


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """A Kafka broker for all tests of the run, started when the first one asks; `kind` says which (ways.py).

    The processes of a parallel run share it. Use `topic_prefix` for topic names, and do not stop this broker: that
    is what `own_kafka` is for.
    """
    must, config = required(os.environ), request.config
    opened, trouble = None, ""

    def start() -> Broker:
        return choose(all_ways(os.environ, _teller(config)), require=must)

    in_parallel = hasattr(config, "workeroutput")
    try:
        opened = share(tmp_path_factory.getbasetemp().parent, start) if in_parallel else start()
    except NoBroker as error:
        trouble = str(error)
    if opened is None:
        # One that was named and does not answer is an error as well: skipping would hide it.
        if must or os.environ.get(GIVEN_VARIABLE):
            pytest.fail(trouble, pytrace=False)
        pytest.skip(trouble)
    config.stash[OPENED] = opened
    config.add_cleanup(opened.close)  # not in the last test's time: this may wait for the other processes
    if in_parallel:
        config.workeroutput["broker"] = _report(opened)  # type: ignore[attr-defined]
    return opened


@pytest.fixture(scope="session")
def kafka_jars(request: pytest.FixtureRequest) -> Installation:
    """What it takes to run a Kafka on this machine.

    Skipped, by its reason, where Java or the jars are missing; a failure where TRUSTFOLD_REQUIRE_BROKER is
    set.
    """
    found, trouble = None, ""
    try:
        found = prepare(_teller(request.config))
    except KafkaUnavailable as error:
        trouble = str(error)
    if found is None:
        if required(os.environ):
            pytest.fail(trouble, pytrace=False)
        pytest.skip(f"needs a Kafka of its own: {trouble}")
    return found


@pytest.fixture
def own_kafka(kafka_jars: Installation) -> Iterator[LocalKafka]:
    """A real Kafka for this test alone, to be stopped, killed and restarted; about three seconds to start."""
    with LocalKafka() as kafka:
        yield kafka


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> Iterator[str]:
    """A prefix for this test's topics, groups and application ids; its topics are deleted afterwards."""
    prefix = new_prefix(request.node.name)
    yield prefix
    opened = request.config.stash.get(OPENED, None)
    if opened is not None and opened.durable:
        with contextlib.suppress(Exception):  # tidiness; a broker in trouble is the next test's to report
            asyncio.run(delete_topics(opened, prefix))


@pytest.fixture(autouse=True)
def _durable_broker(request: pytest.FixtureRequest) -> None:
    """Skip tests marked `durable_broker` where only the mock is to be had."""
    if request.node.get_closest_marker("durable_broker") is None or "kafka_jars" in request.fixturenames:
        return
    found: Broker = request.getfixturevalue("broker")
    if not found.durable:
        pytest.skip(f"{request.node.name} needs a broker that keeps its log, and here is only librdkafka's mock")


def _teller(config: pytest.Config) -> Callable[[str], None]:
    """Give a function that tells the person at the terminal what takes so long, past pytest's capture."""
    capture = config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            print(f"\n{line}", flush=True)

    return say
