"""Page rendering: the Jinja2 environment, the common context of pages, and their security headers.

Every text that a template prints is escaped, and its control characters are made visible; an undefined name is an
error. Nothing is loaded from another host, and no script or style stands inside of a page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from secrets import token_hex
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...history.page import style
from ...schemas.decision_text import counted, plain
from ...security.untrusted import visible
from ...streams.embedded.sign_in import RequestRole, SignIns, cookie_name
from .history_answers import HistoryArchive
from .live import StreamHub
from .order_labels import ORDERS
from .source import DashboardSource

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    # Not `no-referrer`: with it a browser says `Origin: null` for our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

# Path, name and key (after `g`) of what the navigation shows
PAGES = (("/", "Now", "n"), ("/sessions", "Sessions", "s"), ("/tools", "Tools", "t"), ("/models", "Models", "m"),
         ("/history", "History", "h"))  # fmt: skip


class SecurityHeaders:
    """ASGI middleware that adds security headers to every response of the pages."""

    def __init__(self, app: ASGIApp) -> None:
        """Guard an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and its answer back with the headers."""

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(one for one in own if one[0] not in known)]
            await send(message)

        await self._app(scope, receive, guarded)


@dataclass(frozen=True)
class PageContext:
    """Dependencies shared by all pages."""

    source: DashboardSource  # where data comes from and orders go
    sign_ins: SignIns  # cookies and form tokens
    hub: StreamHub  # tells open pages what has changed
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))  # the time now, UTC
    # answers out of the recorded history; closed by whoever made it
    archive: HistoryArchive = field(default_factory=HistoryArchive)

    def render(self, request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
        """Response rendered from a template with `context` and the common context (`_common`).

        Asked by htmx (`HX-Request`), the page comes without its frame; parts of it are then taken by their ids.
        """
        text = environment().get_template(template).render(self._common(request) | context)
        return Response(
            text, status, media_type="text/html", headers={"Cache-Control": "no-store", "Vary": "HX-Request, Cookie"}
        )

    def _common(self, request: Request) -> dict[str, Any]:
        cookie = request.cookies.get(cookie_name(request.headers.get("host", "")), "")
        # As it was asked for; `request.url` takes `?` and `#` of a name for the end of the path.
        path, query = quote(request.scope["raw_path"], safe="/:=,@~%"), request.scope["query_string"].decode("latin-1")
        return {
            "fragment": "hx-request" in request.headers,
            "path": path,
            "query": request.query_params,
            "here": f"{path}?{query}" if query else path,
            "now": self.clock(),
            "source_name": self.source.name,
            "freshness": self.source.freshness(),
            "mark": request.state.mark,
            "may_read": getattr(request.state, "role", None) is not None,
            "may_order": getattr(request.state, "role", None) is RequestRole.OPERATOR,
            "signed_in": bool(cookie) and self.sign_ins.role_of(cookie) is not None,
            "can_sign_in": self.sign_ins.possible,
            "order_words": ORDERS,
            "order_base": token_hex(8),
            "form_token": self.sign_ins.form_token(cookie),
        }


@cache
def environment() -> Environment:
    """The environment of all templates."""
    made = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.globals.update(pages=PAGES, static=static_url, link=link, raw=raw)
    made.filters.update(
        ago=ago,
        span=span,
        moment=moment,
        number=number,
        plain=plain,
        counted=counted,
        segment=segment,
        clock=clock,
        took=took,
        nth=nth,
        digest=digest,
        prose=prose,
        sentence=sentence,
        timed=timed,
        broken=broken,
    )
    return made


def _shown(value: object) -> object:
    """Value as templates print it: empty for None, texts with their control characters made visible."""
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def raw(value: str) -> Markup:
    """Escaped text for the value of a form field, otherwise unchanged, so that it is sent back as it was."""
    return escape(value)


def positive(text: str | None, default: int = 1) -> int:
    """Number of a query string, at least 1 and at most six digits; the default for anything else."""
    return max(1, int(text)) if text and text.isdecimal() and len(text) < 7 else default


def page_within(page: int, total: int, rows: int) -> tuple[int, int]:
    """Number of the page to show, which is `page` or the last one, and of the last one."""
    last = max(1, -(-total // rows))
    return min(page, last), last


# --- filters ---------------------------------------------------------------------------------------------------------


def when(value: str | float | datetime) -> datetime:
    """A moment: of RFC 3339 text, of milliseconds since 1970, or as it is."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, str):
        return datetime.fromisoformat(value).astimezone(UTC)
    return datetime.fromtimestamp(value / 1000, UTC)


def moment(value: str | float | datetime, now: datetime | None = None) -> Markup:
    """A `<time>`: how long ago where `now` is given, else date and time in UTC; a script turns it into the page's zone.

    In a template: `{{ state.since | moment(now) }}`.
    """
    at = when(value)
    return _time(at, "at", None) if now is None else _time(at, "ago", ago(at, now))


def clock(value: str | float | datetime, now: datetime | None = None) -> Markup:
    """A `<time>` that shows the time of day alone; where `now` is given, with the date of any day but today."""
    at = when(value)
    if now is None:
        return _time(at, "clock", f"{at:%H:%M:%S}")
    return _time(at, "recent", f"{at:%H:%M:%S}" if at.date() == when(now).date() else f"{at:%Y-%m-%d %H:%M:%S}")


def _time(at: datetime, mode: str, shown: str | None) -> Markup:
    text = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    # Made of numbers and our own words alone; escaping them would take half of the time of a page.
    return Markup(f'<time datetime="{_rfc3339(at)}" title="{text}" data-show="{mode}">{shown or text}</time>')  # noqa: S704


def ago(value: str | float | datetime, now: datetime) -> str:
    """How long ago, or in how long: `3 min ago`, `in 20 s`, `now`."""
    seconds = (now - when(value)).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A span of time in its two largest units: `20 s`, `3 min`, `2 h 5 min`, `4 d 1 h`."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 90:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 and hours < 10 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 and days < 10 else f"{days} d"


def took(seconds: float) -> str:
    """How long a call took: `3 ms`, `400 ms`, `12.3 s`, then as `span`."""
    if -1 < seconds < 0.9995:
        return f"{round(seconds * 1000)} ms"
    return f"{seconds:.1f} s" if seconds < 60 else span(seconds)


def nth(place: int) -> str:
    """`1st`, `2nd`, `3rd`, `11th`."""
    ending = "th" if place % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place:,}{ending}"


def number(value: float, digits: int = 3) -> str:
    """A number for people: whole ones with thousands, others with so many digits."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.{digits}g}"


def digest(fields: Mapping[str, str]) -> str:
    """Short digest of some fields; equal fields give the same digest."""
    return blake2b("\x1f".join(fields.values()).encode(), digest_size=6).hexdigest()


def sentence(text: str) -> str:
    """A text with a capital first letter and a mark at its end."""
    return text[:1].upper() + text[1:] + ("" if not text or text.endswith((".", "!", "?")) else ".")


def prose(text: str) -> Markup:
    """A text as `timed` makes it, with its parts between backticks, which are commands or names, as `<code>`."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner
        return timed(text)
    code = Markup("<code>{}</code>")
    return Markup().join(code.format(part) if at % 2 else timed(part) for at, part in enumerate(parts))


def timed(text: str) -> Markup:
    """A text with its RFC 3339 times as `<time>`, which the page shows in its zone."""
    parts = _STAMP.split(visible(text))
    return Markup().join(moment(part) if at % 2 else escape(part) for at, part in enumerate(parts))


_STAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,6})?Z)")


def broken(text: str) -> Markup:
    """A key or id with places where a line may break: behind its separators, and nowhere within a word."""
    return Markup("<wbr>").join(escape(part) for part in _WORDS.findall(visible(text)))


_WORDS = re.compile(r"[^-_./:|=,]*[-_./:|=,]*")


def segment(text: str) -> str:
    """A text as a part of a path; slashes stay, as keys hold some, but not about `..`, which a browser takes away."""
    return quote(text, safe=":=,@~" if {".", ".."} & set(text.split("/")) else "/:=,@~")


def link(path: str, query: Mapping[str, Any] | None = None, /, **changes: Any) -> str:
    """A path with a query string: that of `query` with `changes`; None takes a parameter away."""
    pairs = [(name, value) for name, value in _pairs(query) if name not in changes]
    pairs += [(name, value) for name, value in changes.items() if value not in {None, ""}]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _pairs(query: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    if query is None:
        return []
    several = getattr(query, "multi_items", None)
    return list(several() if several else query.items())


def _rfc3339(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- static files ----------------------------------------------------------------------------------------------------

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Every static file by name: its content and a digest of it."""
    folder = files(__package__ or "").joinpath("static")
    found = {one.name: one.read_bytes() for one in folder.iterdir() if one.name.endswith(tuple(_TYPES))}
    found["plots.css"] = style("plots").encode()
    return {name: (content, blake2b(content, digest_size=8).hexdigest()) for name, content in found.items()}


def static_url(name: str) -> str:
    """Path of a static file; it changes with the content, so that browsers may keep it."""
    return f"/static/{name}?v={static_files()[name][1]}"


async def static_file(request: Request) -> Response:
    """`GET /static/NAME`."""
    name = request.path_params["name"]
    found = static_files().get(name)
    if found is None:
        return Response("there is no such file", 404, media_type="text/plain")
    kept = "public, max-age=31536000, immutable" if request.query_params.get("v") == found[1] else "no-cache"
    media_type = _TYPES[name[name.rindex(".") :]]
    return Response(found[0], media_type=media_type, headers={"Cache-Control": kept})
