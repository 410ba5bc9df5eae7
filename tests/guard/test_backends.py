"""The event buffer, an engine that a guard starts, and choosing a backend (the contract: test_backend_contract.py)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from fixed_rules import SHIPPED_TO_OPEN, Rules, TrustRules
from guard_kit import fails, works
from story import START
from trustfold.errors import ConfigError
from trustfold.guard import GuardSettings, ToolGuard
from trustfold.guard.backends import memory
from trustfold.guard.backends.base import EventBuffer
from trustfold.guard.backends.engine_process import _started
from trustfold.guard.backends.kafka import KafkaBackend
from trustfold.guard.backends.memory import MemoryBackend
from trustfold.guard.metrics import EVENTS, GuardMetrics
from trustfold.guard.settings import ENVIRONMENT
from trustfold.guard.testing import MovableClock, guard_for_tests
from trustfold.rules.rules import BehaviourRules
from trustfold.schemas.commands import BreakerForceOpen
from trustfold.schemas.events import TurnStarted
from trustfold.streams.embedded.store_views import StoreViews


def test_a_full_buffer_drops_the_oldest_and_counts() -> None:
    """What cannot be delivered for long is lost from its beginning, and nobody has to guess how much."""
    metrics = GuardMetrics()
    buffer = EventBuffer(3, metrics)
    for n in range(5):
        buffer.add(n)  # type: ignore[arg-type]
    assert buffer.take(2) == [2, 3]
    buffer.add(5)  # type: ignore[arg-type]
    buffer.put_back([2, 3])  # type: ignore[list-item]
    assert buffer.take(10) == [3, 4, 5]
    assert (buffer.dropped, metrics.value(EVENTS, "dropped")) == (3, 3)


async def test_a_record_on_kafka_has_the_trace_of_its_call_as_a_header() -> None:
    """Programs that follow traces read headers, not values."""
    sent: list[Any] = []

    class Producer:
        async def send(self, *_: Any, headers: Any, **__: Any) -> Any:
            sent.append(headers)
            return asyncio.get_running_loop().create_future()

    backend = KafkaBackend("localhost:1", GuardMetrics(), 10)
    backend._producer = Producer()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    common: Any = {"schema_version": "1.0", "id": "1", "time": datetime.now(UTC), "session_id": "s1"}
    sending = asyncio.create_task(backend._send([TurnStarted(**common, traceparent=trace), TurnStarted(**common)]))
    await asyncio.sleep(0)
    sending.cancel()
    assert sent == [[("traceparent", trace.encode())], None]


async def test_failures_without_a_fine_key_are_counted() -> None:
    """Folding in memory, the guard's own metrics say how many failures counted in their tool's key alone."""
    guard = guard_for_tests(rules=Rules(trust=TrustRules(max_fine_keys=1)))

    async def read(path: str) -> None:
        raise OSError(path)

    for folder in "abc":
        await guard.call("read_file", read, {"path": f"/{folder}/x"})
    assert "\ntrustfold_untracked_failures_total{} 2\n" in guard.metrics.text()


# --- over a real `trustfold up` ---------------------------------------------------------------------------------------


async def becomes(guard: ToolGuard, code: str, tool: str = "a") -> None:
    """Wait until a check of a tool says so."""
    async with asyncio.timeout(120):
        while guard.check(tool).code != code:
            await guard.backend.changed(200)


@asynccontextmanager
async def embedded(store: Path, **options: Any) -> AsyncIterator[ToolGuard]:
    """A guard over the engine of a store."""
    async with await ToolGuard.embedded(str(store), workspace_id="w1", wait_s=30, **options) as guard:
        assert guard.connected
        yield guard


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ENVIRONMENT, "TRUSTFOLD_TOKEN", "TRUSTFOLD_DB"):
        monkeypatch.delenv(name, raising=False)


async def test_embedded_starts_an_engine_and_a_second_guard_joins_it(tmp_path: Path) -> None:
    """The circuit that one guard's failures open stops the other; nudges come back; all of it is in the file."""
    store = tmp_path / "t.sqlite"
    async with embedded(store) as one, embedded(store) as two, two.session("s1") as session:
        assert two.backend._engine.process is None  # type: ignore[attr-defined]
        for n in range(SHIPPED_TO_OPEN):
            await one.call("a", fails, {}, session_id=f"f{n}")
        for guard in (one, two):
            await becomes(guard, "circuit_open")
        for _ in range(BehaviourRules().repetitive_calls.minor):
            await session.call("read_file", works, {"path": "x"})
        async with asyncio.timeout(120):
            async for nudge in session.nudges():
                assert nudge.pattern == "repetitive_calls"
                break
        assert await one.flush()
        assert await two.flush()
    with closing(StoreViews.open(store)) as views:
        assert any(key.startswith("breaker:") for key in views.states())


async def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The child's own words."""
    file = tmp_path / "not-a-store"
    file.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(ConfigError, match="not a trustfold store"):
        await ToolGuard.embedded(str(file), wait_s=100)  # it ends with the child: a busy machine starts one slowly


# --- choosing one -----------------------------------------------------------------------------------------------------


async def test_nobody_answers() -> None:
    """The guard goes on without a view and says that it has none; `strict` wants one."""
    guard = await ToolGuard.connect("http://127.0.0.1:1", wait_s=0.2, buffer_events=10)
    assert not guard.connected
    assert (await guard.call("a", works, {}, session_id="s1")).ok
    await guard.close()
    with pytest.raises(ConfigError, match="nobody answers"):
        await ToolGuard.connect("http://127.0.0.1:1", wait_s=0.2, strict=True)
    for wrong in ("localhost:9092", "ftp://x", "kafka://", ""):
        with pytest.raises(ConfigError, match="is no address"):
            await ToolGuard.connect(wrong)


async def test_the_kill_switch_needs_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched off, a guard connects to nobody."""
    monkeypatch.setenv("TRUSTFOLD_ENABLED", "no")
    guard = await ToolGuard.connect("kafka://127.0.0.1:1", strict=True)
    assert (await guard.call("a", works, {})).output == "ok"


def test_the_environment_sets_what_code_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code wins over the environment, and nothing over the kill switch; faults name the variable."""
    monkeypatch.setenv("TRUSTFOLD_WORKSPACE", "from-env")
    monkeypatch.setenv("TRUSTFOLD_SHADOW", "true")
    monkeypatch.setenv("TRUSTFOLD_OPEN_MODE", "off")
    monkeypatch.setenv("TRUSTFOLD_DERIVE_IDEMPOTENCY", "off")
    monkeypatch.setenv("TRUSTFOLD_DIGEST_KEY", "s3cret")
    settings = GuardSettings.from_env(shadow=False)
    assert (settings.workspace_id, settings.shadow, settings.enforce_breakers) == ("from-env", False, False)
    assert not settings.dedupe.derive_keys
    assert "s3cret" not in repr(settings)
    monkeypatch.setenv("TRUSTFOLD_BUFFER_EVENTS", "many")
    with pytest.raises(ConfigError, match="TRUSTFOLD_BUFFER_EVENTS"):
        GuardSettings.from_env()
    monkeypatch.delenv("TRUSTFOLD_BUFFER_EVENTS")
    with pytest.raises(ConfigError, match="'workspce' is no setting"):
        GuardSettings.from_env(workspce="x")


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard in memory that serves for long forgets the sessions unused longest."""
    monkeypatch.setattr(memory, "KEPT_STATES", 500)
    monkeypatch.setattr(memory, "EVICT_EVERY", 200)
    guard = guard_for_tests()
    for n in range(300):
        await guard.call("a", works, {}, session_id=f"s{n}", dedupe_mode="disabled")
    live = sum(len(processor._live) for processor in guard.memory._topology.processors.values())
    assert live < 250
    assert len(guard.memory.published) <= 200
    assert orjson.loads(guard.memory.published[-1])["session_id"] == "s299"


def test_an_engine_that_is_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    """Nobody else would: the guard that started it goes on without."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with (tmp_path / "said").open("w+b") as said, pytest.raises(ConfigError, match=r"not ready within 0\.1 s"):
        _started(process, tmp_path / "store.sqlite", said, 0.1)
    assert process.poll() is not None
    process.kill()


def test_a_guard_in_memory_tells_what_falls_due() -> None:
    """A circuit that was forced open for a minute closes when the clock is looked at, without a further event."""
    clock = MovableClock()
    backend = MemoryBackend(clock, GuardMetrics())
    order = BreakerForceOpen(
        schema_version="1.0", id="o1", time=clock.after(0), workspace_id="w1", key="tool:t", duration_s=60
    )
    backend.publish(order)
    told = len(backend.outputs)
    clock.move(90)
    backend.tick()
    assert "breaker.changed" in {one.type for one in backend.outputs[told:]}


def test_a_guard_in_memory_keeps_its_last_two_thousand_events() -> None:
    """Enough for any test to look at, and an end to what a server would pile up."""
    backend = MemoryBackend(MovableClock(), GuardMetrics(), Rules(enabled=False))
    for number in range(2_100):
        backend.publish(TurnStarted(schema_version="1.0", id=f"t{number}", time=START, session_id="s1"))
    assert len(backend.published) == 2_000
    assert orjson.loads(backend.published[0])["id"] == "t100"


def test_kafka_without_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which extra brings what the address needs."""
    monkeypatch.delitem(sys.modules, "trustfold.guard.backends.kafka", raising=False)
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(ConfigError, match=r"kafka://localhost:9092 is not installed here .*add the extra kafka"):
        asyncio.run(ToolGuard.connect("kafka://localhost:9092"))
