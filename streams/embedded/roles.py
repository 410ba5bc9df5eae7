"""Roles over HTTP: who may publish to the embedded engine, and who may give it orders.

Without a token it is for this machine only: the address a browser asked for must be this machine's (a foreign name
that points here is an attack), and a page of another site may not send anything. Orders (resets, settings, rules,
republishing) take the operator's token, which is another one than the publishers'; without tokens they are refused
unless the server was started to take them: an agent with a shell must not be able to acquit itself. A browser signs in
once (`sign_in`), and its cookie counts for pages alone. See docs/operating.md, Roles.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

import orjson
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import ConfigError
from ...security.untrusted import is_foreign, is_loopback, name_of
from .sign_in import Role, Roles, SignIns, cookie_name

NO_ORDERS = (
    "this is an order, and orders take the operator's token: Authorization: Bearer ...; trustfold's own commands take "
    "it from TRUSTFOLD_OPERATOR_TOKEN"
)
NO_OPERATOR = (
    "this is an order, and this server takes none: start `trustfold up` with TRUSTFOLD_OPERATOR_TOKEN set to a secret "
    "and give the same to your commands, or with --allow-local-orders where every program of this machine is trusted"
)

SIGN_IN = "/sign-in"

OPEN_PATHS = frozenset({"/healthz", SIGN_IN})
"""Answered without a token: what watches over the process has none, and who signs in has none yet."""

STATIC = "/static/"
"""Styles and scripts of the pages, which anybody may have."""

API = ("/v1/", "/hooks/")
"""Paths of programs: they send a token with each request, and a browser's cookie does not count for them."""

ORDER_PATHS = frozenset({"/v1/commands", "/v1/settings", "/v1/reload", "/v1/dead-letters/republish"})
"""A POST to one of these is an operator's order."""


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


class Refusal(NamedTuple):
    """Why a request is not passed on: status and message."""

    status: int
    message: str


class Access:
    """ASGI middleware: checks host, origin and token of every request; `request.state.role` is what it may do."""

    def __init__(self, app: ASGIApp, roles: Roles, sign_ins: SignIns | None = None) -> None:
        """Guard an application; browsers sign in with `sign_ins`."""
        self._app = app
        self._roles = roles
        self._sign_ins = sign_ins or SignIns(roles)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or say why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        role = self._role(path, headers)
        refusal = self._refusal(method, path, headers, role)
        if refusal is None:
            scope.setdefault("state", {})["role"] = role
            await self._app(scope, receive, send)
            return
        response = Response(orjson.dumps({"error": refusal.message}), refusal.status, media_type="application/json")
        if refusal.status == 401:
            if method == "GET" and "text/html" in headers.get("accept", "") and "hx-request" not in headers:
                onward, query = quote(path), scope["query_string"].decode("latin-1")
                response = RedirectResponse(
                    f"{SIGN_IN}?asked=1&next={quote(f'{onward}?{query}' if query else onward)}", 303
                )
            response.headers["WWW-Authenticate"] = "Bearer"
        await response(scope, receive, send)

    def _role(self, path: str, headers: Headers) -> Role | None:
        """What the token of a request allows, else for pages its cookie; None where neither is known."""
        given = headers.get("authorization", "")
        role = self._roles.role_of(given.removeprefix("Bearer ") if given.startswith("Bearer ") else "")
        if role is not Role.OPERATOR and not path.startswith(API):
            cookies = cookie_parser(headers.get("cookie", ""))
            role = self._sign_ins.role_of(cookies.get(cookie_name(headers.get("host", "")), "")) or role
        return role

    def _refusal(self, method: str, path: str, headers: Headers, role: Role | None) -> Refusal | None:
        host = headers.get("host", "")
        if not self._roles.publisher and not is_loopback(name_of(host)):
            return Refusal(421, f"this is not {host!r}; without a token only this machine's own addresses are answered")
        origin = headers.get("origin")
        if is_foreign(origin, host):
            return Refusal(403, f"pages of {origin} may not use this address")
        if role is None and path not in OPEN_PATHS and not path.startswith(STATIC):
            return Refusal(
                401, "send the token: Authorization: Bearer ...; trustfold's own commands take it from TRUSTFOLD_TOKEN"
            )
        if method == "POST" and path.rstrip("/") in ORDER_PATHS and role is not Role.OPERATOR:
            return Refusal(403, NO_ORDERS if self._roles.operator else NO_OPERATOR)
        return None
