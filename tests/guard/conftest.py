"""A guard with a clock of its own, and a real Redis."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixed_rules import Rules
from local_redis import GIVEN, LocalRedis, RedisUnavailable, required
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from trustfold.guard import ToolGuard
from trustfold.guard.idempotency import fallback, store_circuit
from trustfold.guard.testing import MovableClock, guard_for_tests


@pytest.fixture
def clock() -> MovableClock:
    """The time of one test."""
    return MovableClock()


@pytest.fixture
def guard(clock: MovableClock) -> ToolGuard:
    """A guard of one test."""
    return guard_for_tests(clock=clock, rules=Rules())


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Exporter that keeps finished spans in memory."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


@pytest.fixture
def lookup_and_send(guard: ToolGuard) -> None:
    """Two tools of the guard: `lookup` reads, `send` changes something."""
    guard.register("lookup", read_only=True)
    guard.register("send", read_only=False)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Redis for all tests of the run; skipped, with the reason, where there is none."""
    if given := os.environ.get(GIVEN):
        yield given
        return
    try:
        server = LocalRedis(tmp_path_factory.mktemp("redis"))
    except RedisUnavailable as reason:
        if required():
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    yield server.url
    server.stop()


@pytest.fixture
def patient_redis_url(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """That Redis, and guards that wait for it: on a busy machine it would be taken for lost."""
    for name in ("BUDGET_MS", "CLAIM_MS", "PATIENCE_MS", "FIRST_PATIENCE_MS"):
        for module in (fallback, store_circuit):
            monkeypatch.setattr(module, name, 60_000.0, raising=False)
    return redis_url


@pytest.fixture
def redis(tmp_path: Path, redis_url: str) -> Iterator[LocalRedis]:
    """A Redis of the test's own, which it may stop; skipped where there is none."""
    server = LocalRedis(tmp_path)
    yield server
    server.process.send_signal(signal.SIGCONT)
    server.stop()
