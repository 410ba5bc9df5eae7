"""Health of one worker: liveness (should it be restarted) and readiness (does it fold), for its probes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import orjson

from ..probe_server import HealthProbe, ProbeServer
from .kafka_settings import KafkaSettings

if TYPE_CHECKING:
    from .engine import WorkerEngine

STUCK_S = 15.0  # Seconds without a turn of the event loop after which the worker is not alive
SILENT_S = 30.0  # Seconds without a broker's answer after which the worker is not ready
UNDURABLE_S = 30.0  # Seconds without a complete checkpoint after which the worker is not ready


def alive(engine: WorkerEngine) -> str:
    """Return why the worker is not alive; empty if it is."""
    if engine.failed:
        return f"failed: {engine.reason}"
    if time.monotonic() - engine.turned_at > STUCK_S:
        return "the event loop is stuck"
    return ""


def ready(engine: WorkerEngine) -> str:
    """Return why the worker is not ready; empty if it is."""
    now, watch = time.monotonic(), engine.watch
    if reason := alive(engine):
        return reason
    if engine.stopping:
        return "stopping"
    if watch.lost_since is not None or now - watch.answered_at > SILENT_S:
        return "no broker answers"
    if watch.leaderless:
        return f"no leader for partitions of {', '.join(sorted(watch.leaderless))}"
    tenure = engine.tenure()
    if tenure is None:
        return engine.state
    if not engine.metrics.assigned:
        return "no partitions: other workers have them all"
    if now - engine.durable_at > max(UNDURABLE_S, 5 * engine.settings.checkpoint_interval):
        return "checkpoints do not move"
    return ""


def body(engine: WorkerEngine, reason: str) -> bytes:
    """Return the body of the health endpoints as JSON."""
    now = time.monotonic()
    return orjson.dumps(
        {
            "status": reason or "ok",
            "state": engine.state,
            "partitions": engine.metrics.assigned,
            "lag": sum(engine.metrics.lag.values()),
            "seconds_since_broker_answer": round(now - engine.watch.answered_at, 1)
            if engine.watch.answered_at
            else None,
            "seconds_since_checkpoint": round(now - engine.durable_at, 1),
        }
    )


def probe_of(engine: WorkerEngine) -> HealthProbe:
    """Return the probe functions of a worker."""
    try:
        from .exposition import exposition_of  # noqa: PLC0415 - an extra
    except ImportError:
        metrics = None
    else:
        metrics = exposition_of(engine)
    return HealthProbe(partial(alive, engine), partial(ready, engine), partial(body, engine), metrics)


@contextmanager
def probe_port(settings: KafkaSettings) -> Iterator[ProbeServer | None]:
    """Serve the probes of a worker without an engine yet until the block ends; None if the port is off.

    Raises:
        ConfigError: the address is in use or not this machine's.
    """
    if settings.web_port is None:
        yield None
        return
    server = ProbeServer(_CHECKING, settings.web_bind, settings.web_port)
    try:
        yield server
    finally:
        server.close()


_CHECKING = HealthProbe(
    alive=lambda: "",
    ready=lambda: "the topics are being checked",
    body=lambda reason: orjson.dumps({"status": reason or "ok", "state": "starting"}),
    metrics=None,
)
