"""HTTP port of a process for probes and Prometheus, in a thread that only reads what others have written.

    GET /healthz   200 while the process works, waits, starts or stops; 503 when it should be started again
    GET /readyz    200 while it does its work; 503 with the reason while it does not
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
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..security.untrusted import is_foreign, is_loopback, name_of

REQUEST_S = 5.0
"""Seconds that a connection may last; each is for one request."""

MAX_OPEN = 64
"""Connections at once; for another one the oldest is cut."""


class Probe(NamedTuple):
    """Answers about a process; each function is called in the threads of the port.

    Attributes:
        alive: why the process should be started again; empty while it should not.
        ready: why it does not do its work; empty while it does.
        body: JSON document of a health answer, given the reason that goes into its `status`.
        metrics: text for Prometheus; None without prometheus-client.
    """

    alive: Callable[[], str]
    ready: Callable[[], str]
    body: Callable[[str], bytes]
    metrics: Callable[[], bytes] | None


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


class ProbeServer:
    """HTTP server in a thread of its own."""

    def __init__(self, probe: Probe, bind: str, port: int) -> None:
        """Listen on `bind`:`port` and serve at once.

        Raises:
            ConfigError: the address is taken or not this machine's.
        """
        try:
            self._server = _Server((bind, port), _handler(probe, local=is_loopback(bind)))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {bind}:{port} ({error}); set TRUSTFOLD_WEB_PORT to a free port, or to `off`"
            ) from error
        threading.Thread(target=self._server.serve_forever, name="probes", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _handler(probe: Probe, *, local: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S

        def do_GET(self) -> None:
            path, host = self.path.partition("?")[0], self.headers.get("Host", "")
            if local and host and not is_loopback(name_of(host)):  # no browser leaves it out
                self._answer(421, b'{"status": "this port is for this machine alone"}', "application/json")
            elif is_foreign(self.headers.get("Origin"), host):
                self._answer(403, b'{"status": "pages of other sites may not use this address"}', "application/json")
            elif path == "/metrics" and probe.metrics is not None:
                self._answer(200, probe.metrics(), "text/plain; version=0.0.4; charset=utf-8")
            elif path in {"/healthz", "/readyz"}:
                reason = probe.alive() if path == "/healthz" else probe.ready()
                self._answer(503 if reason else 200, probe.body(reason), "application/json")
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
