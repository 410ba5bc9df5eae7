"""Roles over HTTP: who may publish to the embedded engine, and who may give it orders.

Without a token it is for this machine only: the address a browser asked for must be this machine's (a foreign name
that points here is an attack), and a page of another site may not send anything. Orders (resets, settings, rules,
republishing) take the operator's token, which is another one than the publishers'; without tokens they are refused
unless the server was started to take them: an agent with a shell must not be able to acquit itself. See
docs/operating.md, Roles.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import NamedTuple

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...schemas.errors import ConfigError
from ...schemas.hosts import is_foreign, is_loopback, name_of

NO_ORDERS = (
    "this is an order, and orders take the operator's token: Authorization: Bearer ...; trustfold's own commands take "
    "it from TRUSTFOLD_OPERATOR_TOKEN"
)
NO_OPERATOR = (
    "this is an order, and this server takes none: start `trustfold up` with TRUSTFOLD_OPERATOR_TOKEN set to a secret "
    "and give the same to your commands, or with --allow-local-orders where every program of this machine is trusted"
)

OPEN_PATHS = frozenset({"/healthz"})
"""Answered without a token: what watches over the process has none."""


ORDER_PATHS = frozenset({"/v1/commands", "/v1/settings", "/v1/reload", "/v1/dead-letters/republish"})
"""A POST to one of these is an operator's order."""


class Roles(NamedTuple):
    """Tokens that the server asks for.

    Attributes:
        publisher: token that may publish events and read; empty: everybody on this machine may.
        operator: token that may do everything; empty: nobody has it.
        local_orders: whoever may publish may give orders, too.
    """

    publisher: str = ""
    operator: str = ""
    local_orders: bool = False


NOBODY = Roles()
"""No tokens: this machine may publish, nobody may give orders."""


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

    def __init__(self, app: ASGIApp, roles: Roles) -> None:
        """Guard an application."""
        self._app = app
        self._token = roles.publisher.encode()
        self._operator = roles.operator.encode()
        self._local_orders = roles.local_orders

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or say why not."""
        refusal = (
            self._refusal(scope["method"], scope["path"], Headers(scope=scope)) if scope["type"] == "http" else None
        )
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, message = refusal
        response = Response(orjson.dumps({"error": message}), status, media_type="application/json")
        if status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        await response(scope, receive, send)

    def _refusal(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._token and not is_loopback(name_of(host)):
            return 421, f"this is not {host!r}; without a token only this machine's own addresses are answered"
        origin = headers.get("origin")
        if is_foreign(origin, host):
            return 403, f"pages of {origin} may not use this address"
        given = headers.get("authorization", "").encode()
        if self._operator and compare_digest(given, b"Bearer " + self._operator):
            return None
        known = not self._token or compare_digest(given, b"Bearer " + self._token)
        if not known and path not in OPEN_PATHS:
            return (
                401,
                "send the token: Authorization: Bearer ...; trustfold's own commands take it from TRUSTFOLD_TOKEN",
            )
        if method == "POST" and path.rstrip("/") in ORDER_PATHS and not self._local_orders:
            return 403, NO_ORDERS if self._operator else NO_OPERATOR
        return None
