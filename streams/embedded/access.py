"""Who may speak to the embedded engine over HTTP.

Without a token it is for this machine only: the address a browser asked for must be this machine's (a foreign name
that points here is an attack), and a page of another site may not send anything.
"""

from __future__ import annotations

from hmac import compare_digest
from ipaddress import ip_address

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...schemas.errors import ConfigError

OPEN_PATHS = frozenset({"/healthz"})
"""Answered without a token: what watches over the process has none."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine and nothing else."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str) -> None:
    """Refuse to listen to a network without a token.

    Raises:
        ConfigError: the address is not this machine's and there is no token.
    """
    if not token and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from the network and everyone there could give orders; "
            "set TRUSTFOLD_TOKEN to a secret, or listen on 127.0.0.1"
        )


class Access:
    """ASGI middleware: checks the host, the origin and the token of every request."""

    def __init__(self, app: ASGIApp, token: str = "") -> None:
        """Guard an application; an empty token means that none is asked for."""
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or say why not."""
        refusal = self._refusal(scope["path"], Headers(scope=scope)) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, message = refusal
        response = Response(orjson.dumps({"error": message}), status, media_type="application/json")
        if status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        await response(scope, receive, send)

    def _refusal(self, path: str, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._token and not is_loopback(_name_of(host)):
            return 421, f"this is not {host!r}; without a token only this machine's own addresses are answered"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return 403, f"pages of {origin} may not use this address"
        if self._token and path not in OPEN_PATHS:
            given = headers.get("authorization", "")
            if not compare_digest(given.encode(), b"Bearer " + self._token):
                return (
                    401,
                    "send the token: Authorization: Bearer ...; trustfold's own commands take it from TRUSTFOLD_TOKEN",
                )
        return None


def _name_of(host: str) -> str:
    """Host header without its port."""
    return host.rpartition(":")[0] if host.rpartition("]")[2].count(":") else host
