"""`trustfold web` over a real broker: pages of what workers folded, orders to them, outages, what is looked up."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from broker_kit import Broker
from command_line import serving, started, trustfold
from dashboard_kit import failures, now_page, order
from local_kafka import LocalKafka
from trustfold.errors import TrustfoldError
from trustfold.schemas.commands import TrustReset
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.publish import publish
from trustfold.streams.kafka.topics import create_topics
from trustfold.web.dashboard import kafka_source
from trustfold.web.dashboard.kafka_source import KafkaSource
from waiting import wait_until

pytestmark = pytest.mark.durable_broker

ENDS_S = 30.0
"""Three times what an operator is promised: the machine may be busy."""
T = TypeVar("T")


def deployment(bootstrap: str, prefix: str) -> dict[str, str]:
    """Environment of a deployment of its own."""
    return {
        "TRUSTFOLD_BROKER": bootstrap,
        "TRUSTFOLD_TOPIC_PREFIX": f"{prefix}.",
        "TRUSTFOLD_APP_ID": f"{prefix}-app",
        "TRUSTFOLD_PARTITIONS": "2",
        "TRUSTFOLD_CHECKPOINT_INTERVAL": "0.2",
    }


@contextmanager
def worker(kafka: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker over its topics."""
    assert trustfold("topics", "create", cwd=folder, env=kafka).returncode == 0
    with (
        (folder / "worker.log").open("wb") as out,
        started("worker", cwd=folder, env=kafka, stdout=out, stderr=out) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def distrusted(kafka: dict[str, str], folder: Path) -> set[str]:
    """Keys that are not trusted, as the command line shows them."""
    states = json.loads(trustfold("status", "--json", cwd=folder, env=kafka).stdout)["states"]
    return {one["key"] for one in states if one["kind"] == "trust" and one["state"] != "trusted"}


@pytest.mark.slow
def test_a_page_shows_what_a_worker_has_folded_and_its_order_reaches_the_worker(
    broker: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    """Also what was folded before the page was served; SIGTERM ends it in time while a page listens."""
    kafka = deployment(broker.bootstrap, topic_prefix)
    with worker(kafka, tmp_path) as works:
        trustfold("publish", "-", cwd=tmp_path, stdin=failures("deploy", 5), env=kafka)
        with serving("web", "--port", "0", "--allow-local-orders", cwd=tmp_path, env=kafka) as web:
            wait_until(lambda: "deploy" in now_page(web), what="the state on the page", every=0.2)
            trustfold("publish", "-", cwd=tmp_path, stdin=failures("search", 5, session="s2"), env=kafka)
            wait_until(lambda: "search" in now_page(web), what="the newer state", every=0.2)
            wait_until(lambda: "Not up to date" not in now_page(web), what="its worker", every=0.2)

            status, answer = order(web, "reset", "deploy")
            assert status == 200, answer
            assert "the workers apply it" in answer
            wait_until(lambda: "deploy" not in distrusted(kafka, tmp_path), what="the reset", every=0.5)

            works.send_signal(signal.SIGTERM)
            works.wait(60)
            trustfold("publish", "-", cwd=tmp_path, stdin=failures("other", 3, session="s3"), env=kafka)
            wait_until(lambda: "no worker runs" in now_page(web), what="what is missing", every=0.2)

            listening = web.connect()
            listening.request("GET", "/live?topic=now")
            assert listening.getresponse().status == 200
            began = time.monotonic()
            assert web.stop() == 0
            assert time.monotonic() - began < ENDS_S
            listening.close()


def test_without_the_token_nobody_reads_and_with_the_readers_nobody_orders(
    broker: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    """The roles are those of `up`."""
    kafka = deployment(broker.bootstrap, topic_prefix)
    tokens = {"TRUSTFOLD_TOKEN": "reads", "TRUSTFOLD_OPERATOR_TOKEN": "orders"}
    with serving("web", "--port", "0", cwd=tmp_path, env=kafka | tokens) as web:
        assert web.request("GET", "/")[0] == 401
        assert web.request("GET", "/healthz")[0] == 200
        status, page = web.request("GET", "/", headers={"Authorization": "Bearer reads"})
        assert status == 200
        assert b"You may read" in page
        assert b"You may read" not in web.request("GET", "/", headers={"Authorization": "Bearer orders"})[1]
    exposed = trustfold("web", "--host", "0.0.0.0", cwd=tmp_path, env=kafka)
    assert exposed.returncode == 2
    assert b"set TRUSTFOLD_TOKEN" in exposed.stderr


@pytest.mark.slow
def test_a_broker_that_is_away_and_back(own_kafka: LocalKafka, tmp_path: Path) -> None:
    """The page keeps what it knows and says since when it is stale; no order is lost in silence."""
    kafka = deployment(own_kafka.bootstrap, "away")
    with worker(kafka, tmp_path):
        trustfold("publish", "-", cwd=tmp_path, stdin=failures("deploy", 5), env=kafka)
        with serving("web", "--port", "0", "--allow-local-orders", cwd=tmp_path, env=kafka) as web:
            wait_until(
                lambda: re.search(r"trustfold re\w+ \S*deploy", now_page(web)), what="the state on the page", every=0.2
            )
            own_kafka.kill()
            wait_until(lambda: "stale since" in now_page(web), what="a page that says so", every=0.2)
            assert "deploy" in now_page(web)
            status, answer = order(web, "reset", "deploy")
            assert (status, "the order was not sent" in answer) == (409, True), answer
            assert web.request("GET", "/healthz")[0] == 200
            with serving("web", "--port", "0", cwd=tmp_path, env=kafka) as early:
                wait_until(lambda: "no broker answers" in now_page(early), what="the reason", every=0.2)
                began = time.monotonic()
                assert early.stop() == 0
                assert time.monotonic() - began < ENDS_S
            own_kafka.start()
            wait_until(lambda: "stale since" not in now_page(web), what="a page that is new", every=0.2)
            trustfold("publish", "-", cwd=tmp_path, stdin=failures("search", 5, session="s2"), env=kafka)
            wait_until(lambda: "search" in now_page(web), timeout=90, what="the newer state", every=0.2)
            own_kafka.kill()
            began = time.monotonic()
            assert web.stop() == 0
            assert time.monotonic() - began < ENDS_S


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(work)


def settings_of(kafka: dict[str, str]) -> KafkaSettings:
    """Settings of a deployment."""
    return KafkaSettings.from_env(kafka)


@pytest.mark.slow
def test_events_of_a_session_come_from_the_topic_and_from_the_history(
    broker: Broker, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the log, also page by page; what the topic is not looked through for, the history has."""
    kafka = deployment(broker.bootstrap, topic_prefix)
    settings, past = settings_of(kafka), tmp_path / "past"
    ids = [f"s1-deploy-{number}" for number in range(6)]

    async def look() -> None:
        source = KafkaSource(settings, past)
        following = asyncio.create_task(source.run())
        try:
            while not source.complete:  # noqa: ASYNC110 - the source rings no bell
                await asyncio.sleep(0.05)
            events = await source.events(session="s1")
            assert [one.record["id"] for one in events] == ids
            page = await source.events(session="s1", before=events[-2].offset, limit=2)
            assert [(one.offset, one.record["id"]) for one in page] == [
                (one.offset, one.record["id"]) for one in events[2:4]
            ]
            assert await source.events(session="nobody") == []
            for session in ("s1", ""):
                found = await source.events_of([ids[4], ids[0], "nothing"], session=session)
                assert [one.record["id"] for one in found] == [ids[0], ids[4]]
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def write() -> None:
        await create_topics(settings)
        others = [failures("search", 3, session=f"t{number}") for number in range(4)]
        for lines in (failures("deploy", 6), *others):
            await publish(settings, lines.splitlines())

    run(write())
    run(look())
    done = trustfold("record", "--history", past, "--once", cwd=tmp_path, env=kafka)
    assert done.returncode == 0, done.stderr
    run(look())
    monkeypatch.setattr(kafka_source, "LOOKED_THROUGH", 2)
    run(look())


@pytest.mark.slow
def test_decisions_come_in_order_of_time_and_by_id(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """Of all topics and partitions together, page by page, of one session or of all."""
    kafka = deployment(broker.bootstrap, topic_prefix)

    async def look() -> None:
        source = KafkaSource(settings_of(kafka))
        following = asyncio.create_task(source.run())
        try:
            async with asyncio.timeout(60):
                while len(found := await source.decisions()) < 4:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.1)
            assert found == sorted(found)
            assert len({one.offset for one in found}) == len(found)
            assert await source.decisions(before=found[-1].offset, limit=2) == found[-3:-1]
            assert await source.decision(str(found[1].record["id"])) == found[1]
            assert await source.decision("nothing") is None
            sessions = {str(one.record["session_id"]) for one in found if one.record.get("session_id")}
            for session in sessions:
                own = await source.decisions(session=session)
                assert {one.record["session_id"] for one in own} == {session}
            assert source.freshness().newest_ms is not None
            command = TrustReset(schema_version="1.0", id="c1", time=datetime.now(UTC), key="deploy")
            assert await source.send([command]) is None
        finally:
            following.cancel()
            await asyncio.wait([following])
        with pytest.raises(TrustfoldError):
            await KafkaSource(KafkaSettings(bootstrap="127.0.0.1:1")).send([command])

    with worker(kafka, tmp_path):
        for number, tool in enumerate(("deploy", "search", "build")):
            trustfold("publish", "-", cwd=tmp_path, stdin=failures(tool, 5, session=f"s{number}"), env=kafka)
        run(look())
