"""A served store with its dashboard, in this process, for tests of pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
from command_line import Up
from fixed_rules import Rules
from starlette.testclient import TestClient
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.roles import NOBODY
from trustfold.streams.embedded.server import make_app
from trustfold.streams.embedded.sign_in import RoleTokens
from trustfold.web.routes import more_routes

HERE = "http://127.0.0.1:8321"


@contextmanager
def dashboard(folder: Path, roles: RoleTokens = NOBODY) -> Iterator[TestClient]:
    """A client of `up` over a new store, or over the one that stands in the folder."""
    path = folder / "store.sqlite"
    app = make_app(EmbeddedEngine.open(path, Rules()), path, roles=roles, more=more_routes)
    with TestClient(app, base_url=HERE, follow_redirects=False) as client:
        yield client


def before(seconds: float) -> str:
    """A time, so many seconds ago."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def failures(tool: str, times: int = 3, session: str = "s1", **fields: Any) -> bytes:
    """Failed calls of a tool: three, and it must be asked about; five, and its circuit opens."""
    return b"\n".join(
        orjson.dumps(
            {
                "schema_version": "1.0",
                "id": f"{session}-{tool}-{number}",
                "type": "tool_call.finished",
                "time": before(20 - number),
                "session_id": session,
                "call_id": f"{session}-{tool}-{number}",
                "tool_name": tool,
                "status": "error",
                "error": {"type": "HTTPError", "http_status": 500, "message": "internal error"},
            }
            | fields
        )
        for number in range(times)
    )


def now_page(web: Up) -> str:
    """The Now page."""
    status, body = web.request("GET", "/")
    assert status == 200, body
    return body.decode()


def order(web: Up, word: str, key: str) -> tuple[int, str]:
    """Give an order as the form on the Now page does."""
    token = re.search(r'name="form_token" value="(\w+)"', now_page(web))
    assert token is not None
    fields = {"form_token": token[1], "number": "n1", "order": word, "key": key, "workspace": ""}
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    status, body = web.request("POST", "/orders", urlencode(fields).encode(), kind)
    return status, body.decode()
