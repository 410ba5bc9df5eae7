"""Outages: a worker waits and says so, or ends and says why; it never does neither, and SIGTERM always ends it."""

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_kit import Broker
from click.testing import CliRunner
from kafka_run import environment, settings_for
from lane_harness import LaneHarness, events, run, session_timeout
from local_kafka import LocalKafka
from local_kafka_jars import KafkaInstallation
from local_kafka_node import SHORT_LIVED
from outage_kit import ALLOW, DENY, administer, last_line, said_first, say
from paused_broker import paused
from probing import free_port, status
from trustfold.cli.main import main
from trustfold.streams.kafka.broker_queries import OPERATIONS, group_of, rights_on
from trustfold.streams.kafka.topics import create_topics
from undisturbed import assert_as_undisturbed
from waiting import wait_until

pytestmark = [pytest.mark.durable_broker, pytest.mark.slow]

OUTAGE_S = 16.0
"""Twice the session timeout. That batches and waits of the producer have no age is tested in test_lane."""

STOP_S = 30.0
"""Three times what an operator is promised: the machine may be busy."""


@pytest.fixture
def lane(broker: Broker, topic_prefix: str, tmp_path: Path) -> Iterator[LaneHarness]:
    """Topics and workers of one test."""
    own = {"TRUSTFOLD_SESSION_TIMEOUT": session_timeout(broker.kind), "COUNTING_SLOW_US": "50"}
    with LaneHarness(broker.bootstrap, topic_prefix, tmp_path, **own) as harness:
        yield harness


@pytest.fixture(scope="module")
def own_kafka(kafka_jars: KafkaInstallation) -> Iterator[LocalKafka]:
    """A broker of these tests alone, that knows rights; everything is allowed until a test denies it."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
    with LocalKafka(java_options=SHORT_LIVED, settings=settings) as kafka:
        yield kafka


@pytest.mark.parametrize("lost", ["topic", "group"])
def test_rights_lost_by_a_running_worker(own_kafka: LocalKafka, tmp_path: Path, lost: str) -> None:
    """The worker ends with 1; its last line names the topic or group and what to do."""
    with LaneHarness(own_kafka.bootstrap, f"rights-{lost}.", tmp_path, COUNTING_SLOW_US="50") as lane:
        lane.publish(events(2_500))
        worker = lane.start()
        lane.watch("outcomes", 500)
        name = lane.settings.topic("nudges") if lost == "topic" else lane.settings.app_id
        say(DENY, own_kafka.bootstrap, "WRITE" if lost == "topic" else "READ", lost, name)
        assert worker.ended() == 1, worker.text()
        assert name in last_line(worker)
        assert "docs/operating.md#rights" in last_line(worker)
        assert "Traceback" not in worker.text()


def test_what_is_not_allowed_is_told_with_the_remedy(own_kafka: LocalKafka) -> None:
    """A right that a topic or a group lacks is seen without trying it, and the doctor names what to grant."""
    settings = settings_for(own_kafka.bootstrap, "rights")
    run(create_topics(settings))
    nudges = settings.topic("nudges")

    bootstrap = own_kafka.bootstrap

    def checks() -> tuple[int, dict[str, list[str]]]:
        ours = {name: value for name, value in environment(settings).items() if name.startswith("TRUSTFOLD_")}
        done = CliRunner().invoke(main, ["doctor", "--json"], env=ours)
        found: dict[str, list[str]] = {}
        for one in json.loads(done.stdout)["checks"]:
            if one["status"] == "fix":
                found.setdefault(one["check"], []).append(f"{one['found']}; {one['advice']}")
        return done.exit_code, found

    assert administer(bootstrap, lambda admin: rights_on(admin, [nudges])) == {nudges: frozenset(OPERATIONS)}
    assert administer(bootstrap, lambda admin: group_of(admin, settings.app_id)).rights >= {"Read", "Describe"}
    assert checks() == (0, {})
    say(ALLOW, bootstrap, "READ", "topic", nudges)
    say(ALLOW, bootstrap, "DESCRIBE", "group", settings.app_id)
    assert administer(bootstrap, lambda admin: rights_on(admin, [nudges])) == {nudges: {"Read", "Describe"}}
    assert "Read" not in administer(bootstrap, lambda admin: group_of(admin, settings.app_id)).rights
    code, found = checks()
    assert code == 1
    grant = "kafka-acls --add --allow-principal User:…"
    assert found == {
        "rights as worker": [
            f"no Write on topic {nudges}; kafka-acls --add --allow-principal User:… --operation Write --topic {nudges}"
        ],
        f"group {settings.app_id}": [f"no Read on the group; {grant} --operation Read --group {settings.app_id}"],
    }


def test_a_long_outage_under_load(own_kafka: LocalKafka, tmp_path: Path) -> None:
    """A quarter of a minute without a broker costs time and nothing else; SIGTERM ends a worker in the middle of it.

    So it does, at the start and later, where a broker takes connections and says nothing.
    """
    port = free_port()
    with LaneHarness(own_kafka.bootstrap, "outage.", tmp_path, COUNTING_SLOW_US="300") as lane:
        lane.publish(events(5_000))
        worker = lane.start(TRUSTFOLD_WEB_PORT=str(port))
        other = lane.start().ready()
        worker.ready()
        lane.watch("outcomes", 1_000)
        own_kafka.kill()
        ends = time.monotonic() + OUTAGE_S
        wait_until(lambda: "the worker waits" in worker.text(), what=worker.text)
        assert status(port, "/healthz") == (200, "ok")
        assert status(port, "/readyz") == (503, "no broker answers")
        assert timed_stop(other) == 0, other.text()
        wait_until(lambda: time.monotonic() > ends, timeout=OUTAGE_S, what="the end of the outage", every=0.5)
        assert worker.process.poll() is None, worker.text()
        own_kafka.restart()
        lane.settled(90)
        wait_until(lambda: status(port, "/readyz") == (200, "ok"), what=lambda: str(status(port, "/readyz")))
        assert said_first(worker, "the worker waits") == 1, worker.text()
        assert "a broker answers again after" in worker.text()
        assert_as_undisturbed(lane)
        with paused(own_kafka):  # it keeps its connections and says nothing
            starting = lane.start()
            wait_until(lambda: "starting as" in starting.text(), what="the first line of the log")
            assert timed_stop(starting) == 0, starting.text()
            assert timed_stop(worker) == 0, worker.text()
        assert "Traceback" not in worker.text() + other.text() + starting.text()


def timed_stop(worker: Any) -> int:
    """Exit code after SIGTERM; the promise must hold."""
    began = time.monotonic()
    code = worker.stop()
    assert time.monotonic() - began < STOP_S
    return int(code)


def delete_events(lane: LaneHarness) -> None:
    """Delete the first topic of the flow."""
    administer(lane.settings.bootstrap, lambda admin: admin.delete_topics([lane.settings.topic("events")]))


@pytest.mark.parametrize(
    ("act", "topic", "why"),
    [
        (delete_events, "events", "was deleted under the running worker"),
        (lambda lane: lane.recreate("outcomes"), "outcomes", "was deleted and created again"),
    ],
    ids=["source deleted", "source created anew"],
)
def test_topics_changed_under_a_running_worker(
    lane: LaneHarness, act: Callable[[LaneHarness], None], topic: str, why: str
) -> None:
    """The worker ends with 1; its last line names the topic and what to do."""
    lane.publish(events(2_500))
    worker = lane.start()
    lane.watch("outcomes", 500)
    act(lane)
    assert worker.ended() == 1, worker.text()
    last = last_line(worker)
    assert f"{lane.settings.topic_prefix}{topic}" in last
    assert why in last
    assert "TRUSTFOLD_APP_ID" in last
    assert "Traceback" not in worker.text()


def test_sigterm_at_any_moment(lane: LaneHarness) -> None:
    """Whenever the signal comes, in a start, a recovery or a rebalance, the worker is gone in time and in order."""
    lane.publish(events(3_000))
    first = lane.start()
    lane.watch("outcomes", 1_500)
    first.kill()
    for line in ("starting as", "ready in generation"):
        worker = lane.start()
        wait_until(lambda line=line, worker=worker: line in worker.text(), what=worker.text, every=0.005)
        assert timed_stop(worker) == 0, worker.text()
    stays, leaves = lane.start().ready(), lane.start()
    wait_until(lambda: stays.text().count("ready in generation") > 1, what=stays.text, every=0.005)
    leaves.process.send_signal(signal.SIGINT)
    assert leaves.ended() == 0, leaves.text()
    lane.settled()
    assert timed_stop(stays) == 0, stays.text()
    assert_as_undisturbed(lane)


def takes_over(worker: Any, act: Callable[[], object]) -> None:
    """Wait until a worker has taken another assignment after something was done."""
    ready = worker.text().count("ready in generation")
    act()
    wait_until(lambda: worker.text().count("ready in generation") > ready, what=worker.text)


def test_failover(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """A worker killed with -9 is replaced after its session timeout; one that is stopped in order, long before it."""
    with LaneHarness(broker.bootstrap, topic_prefix, tmp_path, COUNTING_SLOW_US="300") as lane:
        lane.publish(events(6_000))
        killed, stays = lane.start().ready(), lane.start().ready()
        lane.watch("outcomes", 800)
        takes_over(stays, killed.kill)
        stopped = lane.start(TRUSTFOLD_SESSION_TIMEOUT="300").ready()
        takes_over(stays, stopped.process.terminate)
        assert stopped.ended() == 0
        lane.settled()
        assert_as_undisturbed(lane)


def test_a_named_instance_comes_back_without_a_rebalance(lane: LaneHarness) -> None:
    """With TRUSTFOLD_INSTANCE_ID a restart within the session timeout leaves the other worker alone."""
    lane.environ["TRUSTFOLD_SESSION_TIMEOUT"] = "20"
    lane.publish(events(2_000))
    stays = lane.start(TRUSTFOLD_INSTANCE_ID="a").ready()
    named = lane.start(TRUSTFOLD_INSTANCE_ID="b").ready()
    wait_until(lambda: stays.text().count("ready in generation") == 2, what=stays.text)
    assert timed_stop(named) == 0, named.text()
    again = lane.start(TRUSTFOLD_INSTANCE_ID="b").ready()
    lane.publish(events(2_000, seed=8))
    lane.settled()
    assert stays.text().count("ready in generation") == 2, stays.text()
    assert timed_stop(again) == 0
    with contextlib.suppress(AssertionError):
        timed_stop(stays)
    assert_as_undisturbed(lane)
