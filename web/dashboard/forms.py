"""Forms that browsers send: read with limits, and taken only from our own pages."""

from __future__ import annotations

from hmac import compare_digest
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ...streams.embedded.request_bodies import read_body
from ...streams.embedded.sign_in import SignIns, cookie_name

MAX_FORM_BYTES = 16 * 1024
MAX_FIELDS = 40


async def read_form(request: Request, sign_ins: SignIns) -> dict[str, str]:
    """Fields of a form that one of our pages sent; of several with one name the last.

    Raises:
        HTTPException: 400 no form, 403 from another page, 413 too large.
    """
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
    """A path of this server, whatever a link says; two slashes, of either kind, would lead to another host."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if safe else "/"
