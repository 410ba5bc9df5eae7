"""The commands that speak to Kafka, on a real broker; and what they say where Kafka support is not installed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from command_line import environment, started, trustfold
from dashboard_kit import failures
from trustfold.cli.demo import events
from trustfold.errors import DOCS
from waiting import wait_until


@pytest.fixture
def kafka(broker: Any, topic_prefix: str) -> dict[str, str]:
    """Environment of a deployment of its own."""
    return {
        "TRUSTFOLD_BROKER": broker.bootstrap,
        "TRUSTFOLD_TOPIC_PREFIX": f"{topic_prefix}.",
        "TRUSTFOLD_APP_ID": f"{topic_prefix}-app",
        "TRUSTFOLD_PARTITIONS": "2",
        "TRUSTFOLD_CHECKPOINT_INTERVAL": "0.2",
    }


@pytest.fixture
def worker(kafka: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker over its topics."""
    assert trustfold("topics", "create", cwd=tmp_path, env=kafka).returncode == 0
    log = tmp_path / "worker.log"
    with (
        log.open("wb") as out,
        started("worker", cwd=tmp_path, env=kafka, stdout=out, stderr=out) as process,
    ):
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.durable_broker
def test_topics_are_created_and_checked(kafka: dict[str, str], tmp_path: Path) -> None:
    """Missing topics are named, created once, and then fit."""
    missing = trustfold("topics", "check", cwd=tmp_path, env=kafka)
    assert missing.returncode == 2
    assert f"{kafka['TRUSTFOLD_TOPIC_PREFIX']}events does not exist" in missing.stderr.decode()
    planned = trustfold("topics", "check", "--json", cwd=tmp_path, env=kafka)
    names = {one["topic"] for one in json.loads(planned.stdout)["differences"]}
    created = trustfold("topics", "create", "--json", cwd=tmp_path, env=kafka)
    assert set(json.loads(created.stdout)["created"]) == names
    assert trustfold("topics", "check", cwd=tmp_path, env=kafka).returncode == 0
    again = trustfold("topics", "create", cwd=tmp_path, env=kafka)
    assert (again.returncode, again.stdout) == (0, b"")
    other = trustfold("topics", "create", "--partitions", "3", cwd=tmp_path, env=kafka)
    assert other.returncode == 2
    assert f"{kafka['TRUSTFOLD_TOPIC_PREFIX']}events: partitions is 2, should be 3" in other.stderr.decode()
    assert trustfold("topics", "check", "--partitions", "3", cwd=tmp_path, env=kafka).returncode == 2
    assert b"no such" not in trustfold("status", cwd=tmp_path, env=kafka).stderr


@pytest.mark.slow
@pytest.mark.durable_broker
def test_status_without_a_worker_says_what_waits(kafka: dict[str, str], tmp_path: Path) -> None:
    """States that nobody folds are not called good."""
    assert trustfold("topics", "create", cwd=tmp_path, env=kafka).returncode == 0
    assert b"every tool is trusted" in trustfold("status", cwd=tmp_path, env=kafka).stdout
    trustfold("publish", "--now", "-", cwd=tmp_path, stdin=b"\n".join(events()), env=kafka)
    done = trustfold("status", cwd=tmp_path, env=kafka)
    waits = f"no worker runs in group {kafka['TRUSTFOLD_APP_ID']}; {len(events()):,} records wait"
    assert (done.returncode, b"every tool is trusted" in done.stdout, waits in done.stderr.decode()) == (0, False, True)
    assert json.loads(trustfold("status", "--json", cwd=tmp_path, env=kafka).stdout)["unfolded"] == waits


@pytest.mark.slow
@pytest.mark.durable_broker
def test_questions_and_lost_calls_are_incidents_over_kafka(kafka: dict[str, str], tmp_path: Path) -> None:
    """They stand in events, so that nobody needs to have folded them; an answer ends a question."""
    assert trustfold("topics", "create", cwd=tmp_path, env=kafka).returncode == 0
    told = [
        {"type": "permission.requested", "session_id": "asks", "tool_name": "bash"},
        {"type": "permission.requested", "session_id": "answered", "tool_name": "bash"},
        {"type": "permission.resolved", "session_id": "answered", "tool_name": "bash", "granted": True},
        {"type": "tool_call.finished", "session_id": "lost", "tool_name": "bash", "status": "lost"},
    ]
    time = datetime.now(UTC).isoformat()
    common = {"schema_version": "1.0", "time": time, "call_id": "c1"}
    lines = [json.dumps(common | {"id": f"e{number}"} | one) for number, one in enumerate(told)]
    done = trustfold("publish", "-", cwd=tmp_path, stdin="\n".join(lines).encode(), env=kafka)
    assert done.returncode == 0, done.stderr
    found = json.loads(trustfold("status", "--json", cwd=tmp_path, env=kafka).stdout)["incidents"]
    assert [(one["state"], one["subject"]) for one in found] == [("waiting", "asks"), ("unknown", "lost")]
    assert b"WAITING" in trustfold("status", cwd=tmp_path, env=kafka).stdout


@pytest.mark.slow
@pytest.mark.durable_broker
def test_a_day_over_kafka(kafka: dict[str, str], worker: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Published events become states, an order changes them, a bad record becomes a dead letter."""

    def states() -> dict[str, str]:
        done = trustfold("status", "--json", cwd=tmp_path, env=kafka)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["states"]
        return {one["key"]: one["state"] for one in found if one.get("state", "trusted") != "trusted"}

    published = trustfold("publish", "--now", "-", cwd=tmp_path, stdin=b"\n".join(events()), env=kafka)
    assert f"{len(events())} published to {kafka['TRUSTFOLD_BROKER']}\n" in published.stderr.decode()
    expected = {"bash|danger=root": "blocked", "service:atlassian": "escalated"}
    wait_until(lambda: states() == expected, what="the day's states")
    history = trustfold("status", "bash", "--include-history", cwd=tmp_path, env=kafka).stdout.decode()
    assert "2026-03-02 09:45:12  ✕  bash|danger=root blocked" in history
    order = trustfold("reset", "bash", cwd=tmp_path, env=kafka)
    assert order.returncode == 0
    assert "the workers apply it" in order.stderr.decode()
    wait_until(lambda: states() == {"service:atlassian": "escalated"}, what="the reset")

    trustfold("publish", "-", cwd=tmp_path, stdin=failures("invoice"), env=kafka)
    wait_until(lambda: states().get("invoice") == "escalated", what="an incident of today")
    noted = trustfold("acknowledge", "invoice", cwd=tmp_path, env=kafka)
    assert noted.returncode == 0, noted.stderr

    def dealt_with() -> list[str]:
        found = json.loads(trustfold("status", "--json", cwd=tmp_path, env=kafka).stdout)["incidents"]
        return [one["subject"] for one in found if "acknowledged" in one]

    wait_until(lambda: dealt_with() == ["invoice"], what="the acknowledgement")
    trustfold("publish", "--now", "-", cwd=tmp_path, stdin=b'{"session_id":"s","type":"nonsense"}', env=kafka)

    def letters() -> list[dict[str, Any]]:
        done = trustfold("dead-letters", "list", "--json", cwd=tmp_path, env=kafka)
        return [json.loads(line) for line in done.stdout.splitlines()]

    (letter,) = wait_until(letters, what="the dead letter")
    assert letter["value"] == '{"session_id":"s","type":"nonsense"}'
    again = trustfold("dead-letters", "republish", letter["ref"], "--yes", cwd=tmp_path, env=kafka)
    assert b"1 published again (what still cannot be processed becomes a dead letter again)\n" in again.stderr

    def new_letter() -> bool:
        return [one["id"] != letter["id"] for one in letters()] == [True]

    wait_until(new_letter, what="the letter of the repeated record, the first one being closed")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


@pytest.mark.parametrize("words", [["topics", "check"], ["worker"], ["status"], ["publish", "-"], ["reset", "bash"]])
def test_no_broker_is_exit_code_3(words: list[str], tmp_path: Path) -> None:
    """Where nobody answers, each command says so in one line."""
    env = {"TRUSTFOLD_BROKER": "127.0.0.1:1"}
    done = trustfold(*words, cwd=tmp_path, stdin=b'{"session_id":"s"}', env=env)
    assert done.returncode == 3
    assert "127.0.0.1" in done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "missing", "extra"),
    [
        (["worker"], "aiokafka", "kafka"),
        (["topics", "create"], "aiokafka", "kafka"),
        (["status", "--bootstrap", "localhost:9092"], "aiokafka", "kafka"),
        (["publish", "-", "--bootstrap", "localhost:9092"], "aiokafka", "kafka"),
        (["up"], "starlette", "web"),
        (["up"], "uvicorn", "web"),
    ],
)
def test_a_missing_extra_is_named(words: list[str], missing: str, extra: str, tmp_path: Path) -> None:
    """Without the libraries that a command needs it says which extra to install; the other commands work."""
    code = f"import sys; sys.modules[{missing!r}] = None; from trustfold.cli.main import main; main({words!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.decode().endswith(f"; add the extra {extra}: {DOCS}/install.md#extras\n")
    assert done.stderr.count(b"\n") == 1
    assert list(tmp_path.iterdir()) == []
