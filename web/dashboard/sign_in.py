"""Sign-in with a token, which sets a cookie, sign-out, and the check that a form comes from a page of this server."""

from __future__ import annotations

from collections.abc import Sequence
from hmac import compare_digest
from math import ceil
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ...schemas.decision_text import counted
from ...streams.embedded.server import read_body
from ...streams.embedded.sign_in import SIGNED_IN_S, SignIns, cookie_name
from .render import PageContext

MAX_FORM_BYTES = 16 * 1024
MAX_FIELDS = 40


def sign_in_routes(site: PageContext) -> Sequence[Route]:
    """Routes for sign-in and sign-out."""

    async def form(request: Request) -> Response:
        """Show the sign-in form, or sign in with a ticket (`trustfold open`)."""
        if ticket := request.query_params.get("ticket", ""):
            cookie = site.sign_ins.cookie_for_ticket(ticket)
            fault = "This link has been used, or is too old; `trustfold open` makes another one."
            if cookie is not None:
                return signed_in(request, cookie, "/")
            return site.render(request, "sign_in.html", status=403, next="/", fault=fault)
        return site.render(request, "sign_in.html", next=own_path(request.query_params.get("next", "/")), fault="")

    async def sign_in(request: Request) -> Response:
        """Check the token and set the cookie."""
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
        return signed_in(request, cookie, onward)

    def signed_in(request: Request, cookie: str, onward: str) -> Response:
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

    async def ticket(request: Request) -> Response:
        """Return a ticket that signs a browser in with the role of the request."""
        possible = site.sign_ins.possible
        made = {"ticket": site.sign_ins.ticket_for(request.state.role) if possible else None}
        return JSONResponse(made)

    async def sign_out(request: Request) -> Response:
        """Delete the cookie."""
        await read_form(request, site.sign_ins)
        name = cookie_name(request.headers.get("host", ""))
        site.sign_ins.end(request.cookies.get(name, ""))
        response = RedirectResponse("/", 303)
        response.delete_cookie(name, httponly=True, samesite="strict")
        return response

    return [
        Route("/sign-in", form),
        Route("/sign-in", sign_in, methods=["POST"]),
        Route("/v1/tickets", ticket, methods=["POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
    ]


async def read_form(request: Request, sign_ins: SignIns) -> dict[str, str]:
    """Fields of a form sent by one of this server's pages; for repeated names the last value."""
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise HTTPException(403, "this form was sent by a page of another site; use the page of this server")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(400, "send a form, as the pages of this server do")
    body = await read_body(request)
    if len(body) > MAX_FORM_BYTES:
        raise HTTPException(413, f"a form has at most {MAX_FORM_BYTES >> 10} KiB")
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise HTTPException(400, f"the form cannot be read: {error}") from error
    cookie = request.cookies.get(cookie_name(request.headers.get("host", "")), "")
    if not compare_digest(fields.get("form_token", "").encode(), sign_ins.form_token(cookie).encode()):
        raise HTTPException(
            403, "this page is out of date (the server was restarted, or you signed in elsewhere); reload it"
        )
    return fields


def own_path(path: str) -> str:
    """A path on this server, to prevent open redirects: two slashes of either kind would lead to another host."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if safe else "/"
