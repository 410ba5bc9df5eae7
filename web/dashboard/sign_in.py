"""Signing in and out: a token once, then a cookie."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...schemas.decision_text import counted
from ...streams.embedded.sign_in import SIGNED_IN_S, cookie_name
from .forms import own_path, read_form
from .render import Site


def sign_in_routes(site: Site) -> Sequence[Route]:
    """Paths of signing in and out."""

    async def form(request: Request) -> Response:
        """Ask for the token."""
        return site.render(request, "sign_in.html", next=own_path(request.query_params.get("next", "/")), fault="")

    async def sign_in(request: Request) -> Response:
        """Give the cookie that stands for a token."""
        fields = await read_form(request, site.sign_ins)
        onward = own_path(fields.get("next", "/"))
        address = request.client.host if request.client is not None else ""
        if wait_s := ceil(site.sign_ins.wait_s(address)):
            fault = f"After so many wrong tokens the next one counts later: try again in {counted(wait_s, 'second')}."
            response = site.render(request, "sign_in.html", status=429, next=onward, fault=fault)
            response.headers["Retry-After"] = str(wait_s)
            return response
        cookie = site.sign_ins.cookie_for(fields.get("token", ""))
        if cookie is None:
            site.sign_ins.missed(address)
            fault = "This server has no such token."
            return site.render(request, "sign_in.html", status=403, next=onward, fault=fault)
        response = RedirectResponse(onward, 303)
        response.set_cookie(
            cookie_name(request.headers.get("host", "")),
            cookie,
            max_age=SIGNED_IN_S,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    async def sign_out(request: Request) -> Response:
        """Take the cookie away."""
        await read_form(request, site.sign_ins)
        name = cookie_name(request.headers.get("host", ""))
        site.sign_ins.end(request.cookies.get(name, ""))
        response = RedirectResponse("/", 303)
        response.delete_cookie(name, httponly=True, samesite="strict")
        return response

    return [
        Route("/sign-in", form),
        Route("/sign-in", sign_in, methods=["POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
    ]
