"""A forked child goes on with its parent's guard: it connects by itself, and neither waits for what the parent runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka_run import settings_for
from trustfold.streams.kafka.topics import create_topics

CHILD = """
import asyncio, os, sys, threading, traceback
from trustfold.guard import RedisDedupeStore, SyncToolGuard, ToolGuard
from trustfold.guard.idempotency import fallback, store_circuit

fallback.BUDGET_MS = fallback.CLAIM_MS = 60_000.0
for module in (fallback, store_circuit):
    module.PATIENCE_MS = module.FIRST_PATIENCE_MS = 60_000.0
way, where = sys.argv[1:3]


def make(kind):
    if way == "memory":
        return kind.in_memory(workspace_id="w1")
    if way == "redis":
        return kind.in_memory(workspace_id="w1", store=RedisDedupeStore.from_url(where, sys.argv[3]))
    if way == "embedded":
        return kind.embedded(where, workspace_id="w1", wait_s=30)
    return kind.connect(where, workspace_id="w1", wait_s=30)


def check(name, guard, call, flush, wait_until_connected):
    keyed = {"session_id": name, "idempotency_key": "k", "workspace_id": "w1"}
    assert call("x", lambda: "first", {}, **{**keyed, "session_id": "parent"}).ok
    for _ in range(2):
        guard_id, child = guard.guard_id, os.fork()
        if child == 0:
            try:
                assert guard.guard_id != guard_id
                known = call("x", lambda: "again", {}, **{**keyed, "session_id": "parent"})
                assert known.output == "first", known
                assert call("x", lambda: name, {}, **{**keyed, "session_id": str(os.getpid())}).output == name
                assert call("slow", lambda: 1, {}, session_id=name, timeout_ms=5000).output == 1
                wait_until_connected()
                assert flush(60)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert call("x", lambda: "again", {}, **{**keyed, "session_id": "parent"}).output == "first"
    assert flush(60)


def connected(guard):
    for _ in range(400):
        if guard.connected:
            return
        threading.Event().wait(0.05)
    raise AssertionError("not connected")


with make(SyncToolGuard) as guard:
    check("sync", guard, guard.call, guard.flush, lambda: connected(guard))

if way in {"memory", "embedded"}:  # a guard on loops that come and go
    made = make(ToolGuard)
    other = asyncio.run(made) if asyncio.iscoroutine(made) else made
    check(
        "async", other, lambda *a, **k: asyncio.run(other.call(*a, **k)), lambda s: asyncio.run(other.flush(s)),
        lambda: connected(other),
    )
    asyncio.run(other.close())

print("fine")
"""


def run(way: str, where: str, *more: str) -> None:
    """Fork a guard twice in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, way, where, *more],
        env=os.environ.copy(), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip().splitlines()[-1:]) == (0, ["fine"]), done.stderr[-3000:]


def test_a_fork_of_a_guard_in_memory() -> None:
    """With a loop and without one."""
    run("memory", "")


def test_a_fork_of_a_guard_over_an_engine(tmp_path: Path) -> None:
    """The child follows and delivers by itself, and leaves the engine to its parent."""
    run("embedded", str(tmp_path / "t.sqlite"))


def test_a_fork_of_a_guard_with_redis(redis_url: str) -> None:
    """The child has connections of its own, and the same keys."""
    run("redis", redis_url, f"trustfold-test:{uuid4()}:")


def test_a_fork_of_a_guard_over_kafka(broker: Any, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child's clients are its own, on a loop of its own."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=1)
    asyncio.run(create_topics(settings))
    monkeypatch.setenv("TRUSTFOLD_TOPIC_PREFIX", settings.topic_prefix)
    run("kafka", f"kafka://{broker.bootstrap}")


HELD = """
import os, threading, time
from trustfold.guard import SyncToolGuard

guard = SyncToolGuard.in_memory()
entered, may_go = threading.Event(), threading.Event()

def slow():
    entered.set()
    may_go.wait(60)
    return "parent"

guard.register("x", idempotent=True)
options = {"session_id": "s", "idempotency_key": "k"}
thread = threading.Thread(target=guard.call, args=("x", slow, {}), kwargs=options)
thread.start()
entered.wait(60)
child = os.fork()
if child == 0:
    os._exit(0 if guard.call("x", lambda: "child", {}, **options).output == "child" else 1)
assert os.waitpid(child, 0)[1] == 0
may_go.set()
thread.join()
print("fine")
"""


def test_a_child_does_not_wait_for_what_its_parent_runs() -> None:
    """In memory no process can see another's end: the child makes the call itself instead of waiting for ever."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HELD], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "fine", done.stderr[-3000:]
