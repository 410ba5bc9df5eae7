"""Health and metrics of one worker over HTTP, from a thread that only reads what others have written.

    GET /healthz   200 while the worker works, waits, starts or stops; 503 when it has failed or its event loop is stuck
    GET /readyz    200 while it folds; 503 with the reason while it does not
    GET /metrics   for Prometheus, where prometheus-client is installed

A health check that ran on the loop it judges would answer as long as nothing else does.
"""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import orjson

from ...schemas.errors import ConfigError
from .settings import KafkaSettings

if TYPE_CHECKING:
    from .engine import Engine

STUCK_S = 15.0
"""Seconds without a turn of the event loop after which the worker is not alive."""

SILENT_S = 30.0
"""Seconds without an answer of a broker after which the worker is not ready."""

UNDURABLE_S = 30.0
"""Seconds without a complete checkpoint after which the worker is not ready."""


def alive(engine: Engine) -> str:
    """Why the worker is not alive; empty while it is."""
    if engine.failed:
        return f"failed: {engine.reason}"
    if time.monotonic() - engine.turned_at > STUCK_S:
        return "the event loop is stuck"
    return ""


def ready(engine: Engine) -> str:
    """Why the worker is not ready; empty while it is."""
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


def body(engine: Engine, reason: str) -> bytes:
    """Body of the health endpoints, as JSON."""
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


class HealthServer:
    """HTTP server in a thread of its own."""

    def __init__(self, engine: Engine, settings: KafkaSettings) -> None:
        """Listen and serve at once.

        Raises:
            ConfigError: the address is taken or not this machine's.
        """
        try:
            self._server = ThreadingHTTPServer((settings.web_bind, settings.web_port or 0), _handler(engine))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {settings.web_bind}:{settings.web_port} ({error}); set TRUSTFOLD_WEB_PORT to a free "
                "port, or to `off`"
            ) from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _handler(engine: Engine) -> type[BaseHTTPRequestHandler]:
    exposition = _exposition(engine)

    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics" and exposition is not None:
                self._answer(200, exposition(), "text/plain; version=0.0.4; charset=utf-8")
            elif path in {"/healthz", "/readyz"}:
                reason = alive(engine) if path == "/healthz" else ready(engine)
                self._answer(503 if reason else 200, body(engine, reason), "application/json")
            else:
                self._answer(404, b'{"status": "there are /healthz, /readyz and /metrics"}', "application/json")

        def _answer(self, code: int, content: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nothing: probes come every few seconds."""

    return Handler


def _exposition(engine: Engine) -> Any:
    try:
        from .exposition import exposition_of  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return exposition_of(engine)
