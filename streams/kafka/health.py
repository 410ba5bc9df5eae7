"""Health and metrics of one worker over HTTP, from a thread that only reads what others have written.

    GET /healthz   200 while the worker works, waits, starts or stops; 503 when it has failed or its event loop is stuck
    GET /readyz    200 while it folds; 503 with the reason while it does not
    GET /metrics   for Prometheus, where prometheus-client is installed

A health check that ran on the loop it judges would answer as long as nothing else does. Connections on which no request
arrives in time are cut, the oldest first where there are many: whoever holds them must not keep a probe from its
answer. A port that only this machine reaches answers only requests that were meant for this machine.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import orjson

from ...errors import ConfigError
from ...security.untrusted import is_foreign, is_loopback, name_of
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


REQUEST_S = 5.0
"""Seconds that a connection may last; each is for one request."""

MAX_OPEN = 64
"""Connections at once; for another one the oldest is cut."""


class _Server(ThreadingHTTPServer):
    """A thread for each connection, few and not for long."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[Any, float] = {}
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        self._open[request] = time.monotonic()
        for oldest in list(self._open)[:-MAX_OPEN]:
            self._cut(oldest)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Cut what has lasted too long; called twice a second."""
        for request, began in list(self._open.items()):
            if time.monotonic() - began > REQUEST_S:
                self._cut(request)

    def shutdown_request(self, request: Any) -> None:
        """A connection is over."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that is gone, or was cut off, is no news."""

    def _cut(self, request: Any) -> None:
        """End a connection; its thread finds the end of its input."""
        self._open.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class HealthServer:
    """HTTP server in a thread of its own."""

    def __init__(self, engine: Engine, settings: KafkaSettings) -> None:
        """Listen and serve at once.

        Raises:
            ConfigError: the address is taken or not this machine's.
        """
        try:
            self._server = _Server((settings.web_bind, settings.web_port or 0), _handler(engine, settings.web_bind))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {settings.web_bind}:{settings.web_port} ({error}); set TRUSTFOLD_WEB_PORT to a free "
                "port, or to `off`"
            ) from error
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _handler(engine: Engine, bind: str) -> type[BaseHTTPRequestHandler]:
    exposition = _exposition(engine)
    local = is_loopback(bind)

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S

        def do_GET(self) -> None:
            path, host = self.path.partition("?")[0], self.headers.get("Host", "")
            if local and host and not is_loopback(name_of(host)):  # no browser leaves it out
                self._answer(421, b'{"status": "this port is for this machine alone"}', "application/json")
            elif is_foreign(self.headers.get("Origin"), host):
                self._answer(403, b'{"status": "pages of other sites may not use this address"}', "application/json")
            elif path == "/metrics" and exposition is not None:
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
