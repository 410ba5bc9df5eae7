"""Two guard processes and one worker on a real Kafka: what one learns holds for both, and an outage stops neither."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from kafka_run import consumer, environment, settings_for, stop_worker
from local_kafka import LocalKafka
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.topics import create_topics
from waiting import wait_until
from warm_process import WarmProcess

SCRIPT = Path(__file__).parents[1] / "support" / "guard_script.py"
WORKER = """
import sys
from trustfold.rules.rules import BreakerPolicy, BreakerRules, RuleSet
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.worker import run_worker
quick = BreakerPolicy(open_s=3, lease_s=3, backoff=1)
sys.exit(run_worker(KafkaSettings.from_env(), RuleSet(breakers=BreakerRules(tool=quick))))
"""


class GuardProcess:
    """One guard; `ask` gives it an order and waits for the answer."""

    def __init__(self, settings: KafkaSettings, log: Path) -> None:
        with log.open("ab") as out:
            self.process = WarmProcess(
                [sys.executable, str(SCRIPT), f"kafka://{settings.bootstrap}", settings.topic_prefix],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True, env=os.environ.copy(),
            )  # fmt: skip
        self.log = log
        self._said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(line)

    def answer(self, timeout: float = 40) -> dict[str, Any]:
        """The next line it says."""
        try:
            said: dict[str, Any] = json.loads(self._said.get(timeout=timeout))
        except queue.Empty:
            raise AssertionError(f"no answer: {self.log.read_text()[-2000:]}") from None
        return said

    def order(self, do: str, **order: Any) -> None:
        """Give an order without waiting."""
        self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self.process.stdin.flush()

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        """Give an order and wait for what comes of it."""
        self.order(do, **order)
        return self.answer()

    def call(self, tool_is: str, session: str, tool: str = "fetch") -> dict[str, Any]:
        """Have it call a tool that works, fails or hangs."""
        return self.ask("call", tool=tool, tool_is=tool_is, session=session)

    def sees(self, code: str, tool: str = "fetch", timeout: float = 20) -> None:
        """Wait until a check of the tool says so."""
        wait_until(
            lambda: self.ask("check", tool=tool)["code"] == code,
            timeout=timeout,
            what=lambda: f"{code}; it is {self.ask('check', tool=tool)}",
        )

    def kill(self) -> None:
        """Kill -9, and let go of its pipes."""
        self.process.kill()
        with self.process:
            pass


@pytest.fixture
def settings(own_kafka: LocalKafka, topic_prefix: str) -> KafkaSettings:
    """A deployment of this test's own, with its topics."""
    made = settings_for(own_kafka.bootstrap, topic_prefix, partitions=2)
    asyncio.run(create_topics(made))
    return made


@pytest.fixture
def worker(settings: KafkaSettings, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One worker with quick circuits."""
    with (tmp_path / "worker.log").open("ab") as log:
        process = WarmProcess([sys.executable, "-c", WORKER], env=environment(settings), stderr=log)
    said = tmp_path / "worker.log"
    try:
        wait_until(lambda: "ready in generation" in said.read_text(), timeout=120, what="a worker that is ready")
        yield process
    finally:
        stop_worker(process)


@pytest.fixture
def guards(settings: KafkaSettings, worker: subprocess.Popen[bytes], tmp_path: Path) -> Iterator[list[GuardProcess]]:
    """Two guards that follow it."""
    made = [GuardProcess(settings, tmp_path / f"guard-{n}.log") for n in range(2)]
    for guard in made:
        assert guard.answer()["connected"]
    yield made
    for guard in made:
        guard.kill()


def events_on(settings: KafkaSettings, session: str, expected: int) -> list[dict[str, Any]]:
    """Events of a session that are in Kafka, once so many are."""

    async def read() -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        ends = time.monotonic() + 30
        async with consumer(settings, ("events",)) as reader:
            while len(found) < expected and time.monotonic() < ends:
                for records in (await reader.getmany(timeout_ms=200)).values():
                    for record in records:
                        if record.key == session.encode():
                            event = orjson.loads(record.value)
                            found[event["id"]] = event
        return list(found.values())

    return asyncio.run(read())


@pytest.mark.durable_broker
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_fleet_through_a_bad_day(
    guards: list[GuardProcess], settings: KafkaSettings, own_kafka: LocalKafka, tmp_path: Path
) -> None:
    """One circuit for both; one probe for the fleet; a killed probe frees its slot; an outage loses nothing."""
    one, two = guards

    # An opened circuit stops both.
    for n in range(5):
        assert one.call("fails", f"a{n}")["status"] == "retriable_error"
    for guard in guards:
        guard.sees("circuit_open")
        refused = guard.call("works", "b1")
        assert refused["status"] == "circuit_open"
        assert refused["ms"] < 1000  # of a busy machine

    # Half-open: exactly one probe passes. The prober hangs, the other is refused at once, and so it stays.
    wait_until(lambda: one.ask("check", tool="fetch")["code"] != "circuit_open", what="half-open")
    one.order("call", tool="fetch", tool_is="hangs", session="probe")
    assert one.answer() == {"entered": True}
    beside = wait_until(lambda: _refused(two), what="the other guard sees the lease")
    assert beside["status"] == "circuit_open"

    # Killing the prober frees the slot: the lease ends, which counts as a failed probe; then the other may probe.
    one.kill()
    results = []

    def probed() -> bool:
        results.append(two.call("works", f"p{len(results)}"))
        return [one["status"] for one in results].count("success") >= 2

    wait_until(probed, every=0.2, what=lambda: f"two good probes; there were {results[-5:]}")
    two.sees("allowed")

    # With the broker gone it goes on with its last view, and delivers when the broker is back.
    guards[0] = three = GuardProcess(settings, tmp_path / "guard-3.log")
    assert three.answer()["connected"]
    own_kafka.kill()
    for guard in (two, three):
        wait_until(lambda guard=guard: not guard.ask("check", tool="fetch")["connected"], what="it notices")
        assert guard.call("works", f"outage-{guard is two}")["status"] == "success"
        assert guard.ask("buffered")["buffered"] >= 2
    own_kafka.restart()
    for guard in (two, three):
        assert guard.ask("flush", timeout=60)["flushed"]
        assert guard.ask("buffered") == {"buffered": 0, "dropped": 0}
        wait_until(lambda guard=guard: guard.ask("check", tool="fetch")["connected"], what="it is back")
        kinds = [event["type"] for event in events_on(settings, f"outage-{guard is two}", 2)]
        assert sorted(kinds) == ["tool_call.finished", "tool_call.started"]


def _refused(guard: GuardProcess) -> dict[str, Any] | None:
    """A call that is refused; None while it would get through, which it must not."""
    result = guard.call("works", "beside")
    assert result["status"] != "success", "a second probe passed"
    return result
