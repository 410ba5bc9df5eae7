"""HTTP access control: who may publish to the embedded engine, and who may send commands (docs/operating.md, Roles).

Without a token only this machine has access: the Host header must name this machine (DNS rebinding), and pages of other
sites may not send anything. A browser signs in once (`sign_in`), and its cookie is valid for pages only.
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
from .sign_in import RequestRole, RoleTokens, SignIns, cookie_name

NO_ORDERS = (
    "this is an order, and orders need the operator's token as a bearer; trustfold's commands take it from "
    "TRUSTFOLD_OPERATOR_TOKEN"
)
NO_OPERATOR = (
    "this is an order, and this server takes none: start `trustfold up` with TRUSTFOLD_OPERATOR_TOKEN set to a secret "
    "and give the same to your commands, or with --allow-local-orders where every program of this machine is trusted"
)

SIGN_IN = "/sign-in"

# Paths that need no token: liveness probes have none, and the sign-in page asks for it
OPEN_PATHS = frozenset({"/healthz", SIGN_IN})

STATIC = "/static/"  # Styles and scripts of the pages; need no token

# Paths of the API: programs send a token with each request; a browser's cookie is not accepted
API = ("/v1/", "/hooks/")

# Paths whose POST is an operator's command
ORDER_PATHS = frozenset({"/v1/commands", "/v1/settings", "/v1/reload", "/v1/dead-letters/republish"})


NOBODY = RoleTokens()  # Roles without tokens: programs of this machine may publish, nobody may send commands


def check_exposure(host: str, token: str) -> None:
    """Refuse to listen on a network address without a token."""
    if not token and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from the network and everyone there could give orders; "
            "set TRUSTFOLD_TOKEN to a secret, or listen on 127.0.0.1"
        )


class RequestRefusal(NamedTuple):
    """Refusal of a request: status and message."""

    status: int
    message: str


class AccessMiddleware:
    """ASGI middleware that checks host, origin and token of every request.

    Sets `request.state.role` and `request.state.publisher`: who sends events, None for an operator, who may send all.
    """

    def __init__(self, app: ASGIApp, roles: RoleTokens, sign_ins: SignIns) -> None:
        """Protect an application; browsers sign in with `sign_ins`."""
        self._app = app
        self._roles = roles
        self._sign_ins = sign_ins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with the refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        role = self._role(path, headers)
        refusal = self._refusal(method, path, headers, role)
        if refusal is None:
            sender = None if role is RequestRole.OPERATOR else self._roles.publisher_of(_token(headers))
            scope.setdefault("state", {}).update(role=role, publisher=sender)
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

    def _role(self, path: str, headers: Headers) -> RequestRole | None:
        """Return the role of a request's token, else for pages of its cookie; None without a valid one."""
        role = self._roles.role_of(_token(headers))
        if role is not RequestRole.OPERATOR and not path.startswith(API):
            cookies = cookie_parser(headers.get("cookie", ""))
            role = self._sign_ins.role_of(cookies.get(cookie_name(headers.get("host", "")), "")) or role
        return role

    def _refusal(self, method: str, path: str, headers: Headers, role: RequestRole | None) -> RequestRefusal | None:
        host = headers.get("host", "")
        if not self._roles.publisher and not is_loopback(name_of(host)):
            return RequestRefusal(
                421, f"this is not {host!r}; without a token only this machine's own addresses are answered"
            )
        origin = headers.get("origin")
        if is_foreign(origin, host):
            return RequestRefusal(403, f"pages of {origin} may not use this address")
        if role is None and path not in OPEN_PATHS and not path.startswith(STATIC):
            return RequestRefusal(
                401, "a bearer token is needed; guards and commands of trustfold take it from TRUSTFOLD_TOKEN"
            )
        if method == "POST" and path.rstrip("/") in ORDER_PATHS and role is not RequestRole.OPERATOR:
            return RequestRefusal(403, NO_ORDERS if self._roles.operator else NO_OPERATOR)
        return None


def _token(headers: Headers) -> str:
    given = headers.get("authorization", "")
    return given.removeprefix("Bearer ") if given.startswith("Bearer ") else ""
