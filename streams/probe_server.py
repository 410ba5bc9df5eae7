"""HTTP port for health probes and Prometheus, in a separate thread that only reads.

    GET /healthz   200 while the process works, waits, starts or stops; 503 if it should be restarted
    GET /readyz    200 while it does its work; 503 with the reason while it does not
    GET /metrics   for Prometheus, where prometheus-client is installed

A health check on the checked event loop would answer only while everything else does. Connections without a request in
time are closed, the oldest first above a limit, so that they cannot block a probe. A port on a loopback address answers
only requests addressed to this machine.
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

REQUEST_S = 5.0  # Lifetime of a connection in seconds; each serves one request
MAX_OPEN = 64  # Largest number of connections; for another one the oldest is closed


class HealthProbe(NamedTuple):
    """Health functions of a process; called in the threads of the port."""

    alive: Callable[[], str]  # returns why the process should be restarted; empty if it should not
    ready: Callable[[], str]  # returns why it does not work; empty if it does
    body: Callable[[str], bytes]  # returns the JSON document of a health answer, given the reason for its `status`
    metrics: Callable[[], bytes] | None  # returns the text for Prometheus; None without prometheus-client


class _LimitedServer(ThreadingHTTPServer):
    """Server with a thread per connection, limited in number and time."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[Any, float] = {}
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread."""
        self._open[request] = time.monotonic()
        for oldest in list(self._open)[:-MAX_OPEN]:
            self._cut(oldest)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections that exceed their lifetime; called twice a second."""
        for request, began in list(self._open.items()):
            if time.monotonic() - began > REQUEST_S:
                self._cut(request)

    def shutdown_request(self, request: Any) -> None:
        """Forget a closed connection."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: closed connections are expected."""

    def _cut(self, request: Any) -> None:
        """Shut down a connection; its thread reads the end of input."""
        self._open.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class ProbeServer:
    """HTTP server in its own thread."""

    def __init__(self, probe: HealthProbe, bind: str, port: int) -> None:
        """Listen on `bind`:`port` and start serving."""
        self.probe = probe  # functions that answer; may be replaced at any time
        try:
            self._server = _LimitedServer((bind, port), _handler(self, local=is_loopback(bind)))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {bind}:{port} ({error}); set TRUSTFOLD_WEB_PORT to a free port, or to `off`"
            ) from error
        threading.Thread(target=self._server.serve_forever, name="probes", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _handler(server: ProbeServer, *, local: bool) -> type[BaseHTTPRequestHandler]:
    class ProbeHandler(BaseHTTPRequestHandler):
        timeout = REQUEST_S

        def do_GET(self) -> None:
            probe = server.probe
            path, host = self.path.partition("?")[0], self.headers.get("Host", "")
            if local and host and not is_loopback(name_of(host)):  # every browser sends Host
                self._answer(421, b'{"status": "this port is for this machine alone"}', "application/json")
            elif is_foreign(self.headers.get("Origin"), host):
                self._answer(403, b'{"status": "pages of other sites may not use this address"}', "application/json")
            elif path == "/metrics" and probe.metrics is not None:
                self._answer(200, probe.metrics(), "text/plain; version=0.0.4; charset=utf-8")
            elif path in {"/healthz", "/readyz"}:
                reason = probe.alive() if path == "/healthz" else probe.ready()
                self._answer(503 if reason else 200, probe.body(reason), "application/json")
            else:
                known = b"there are /healthz, /readyz and, with the extra `metrics`, /metrics"
                self._answer(404, b'{"status": "%s"}' % known, "application/json")

        def _answer(self, code: int, content: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Do nothing: probes come every few seconds."""

    return ProbeHandler
