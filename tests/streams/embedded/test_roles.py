"""Roles over HTTP: publishers write events, operators give orders, and slow or strange requests are refused."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest
from command_line import trustfold, up
from crowd import await_end, held, is_open, memory_kib, open_files
from trustfold.schemas.examples import EXAMPLES
from trustfold.security.redaction import redact_text
from waiting import wait_until

EVENT = orjson.dumps(EXAMPLES["turn.started"])
ORDERS = {
    "/v1/commands": orjson.dumps(EXAMPLES["trust.reset"]),
    "/v1/settings": orjson.dumps(EXAMPLES["settings.changed"]),
    "/v1/reload": b"",
    "/v1/dead-letters/republish": b'{"offsets": []}',
}
TOKENS = {"TRUSTFOLD_TOKEN": "publishers", "TRUSTFOLD_OPERATOR_TOKEN": "operators"}


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"} if token else {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "flag", "token", "publishes", "orders"),
    [
        ({}, False, "", 200, 403),
        ({}, True, "", 200, 200),
        (TOKENS, False, "", 401, 401),
        (TOKENS, False, "publishers", 200, 403),
        (TOKENS, False, "operators", 200, 200),
        ({"TRUSTFOLD_TOKEN": "publishers"}, False, "publishers", 200, 403),
        ({"TRUSTFOLD_OPERATOR_TOKEN": "operators"}, False, "", 200, 403),
        ({"TRUSTFOLD_OPERATOR_TOKEN": "operators"}, False, "operators", 200, 200),
    ],
)
def test_who_may_publish_and_who_may_give_orders(
    tmp_path: Path, env: dict[str, str], flag: bool, token: str, publishes: int, orders: int
) -> None:
    """A publisher's token is no operator's; without tokens, orders need --allow-local-orders."""
    with up(cwd=tmp_path, env=env, orders=flag) as server:
        assert server.request("POST", "/v1/events", EVENT, bearer(token))[0] == publishes
        for path, body in ORDERS.items():
            status, answer = server.request("POST", path, body, bearer(token))
            assert status == orders, (path, answer)
            if status == 403:
                assert b"TRUSTFOLD_OPERATOR_TOKEN" in answer
            assert redact_text(answer.decode()) == answer.decode()  # a guard logs it without what looks like a secret


def test_the_command_line_gives_orders_with_the_operators_token(tmp_path: Path) -> None:
    """An order to a server is refused, with what to do; with the operator's token it is taken."""
    with up(cwd=tmp_path, env={"TRUSTFOLD_OPERATOR_TOKEN": "operators"}, orders=False) as server:
        order = ("settings", "save", "workspace", "nudge_level=direct", "--workspace", "w")
        refused = trustfold(*order, "--url", server.url, cwd=tmp_path)
        assert refused.returncode != 0
        assert b"TRUSTFOLD_OPERATOR_TOKEN" in refused.stderr
        env = {"TRUSTFOLD_OPERATOR_TOKEN": "operators"}
        taken = trustfold(*order, "--url", server.url, cwd=tmp_path, env=env)
        assert taken.returncode == 0, taken.stderr
    assert trustfold(*order, cwd=tmp_path).returncode == 0


@pytest.mark.slow
def test_half_requests_are_cut(tmp_path: Path) -> None:
    """1,500 connections that never finish their headers are closed; others are answered meanwhile."""
    with up(cwd=tmp_path) as server:
        assert server.get("/healthz")["status"] == "ok"
        parts, pid = urlsplit(server.url), server.process.pid
        files, memory = open_files(pid), memory_kib(pid)
        with held((parts.hostname or "", parts.port or 0)) as connections:
            assert server.get("/healthz")["status"] == "ok"
            assert server.post("/v1/events", EVENT)["accepted"] == 1
            assert is_open(connections[-1])
            await_end(connections)
        wait_until(lambda: open_files(pid) <= files + 8, what=lambda: f"{open_files(pid)} files, once {files}")
        assert memory_kib(pid) - memory < 100 * 1024


@pytest.mark.parametrize("offset", [2**63, 2**64, -1, 10**30])
def test_an_offset_that_no_store_holds_is_a_bad_request(tmp_path: Path, offset: int) -> None:
    """400, and not a fault of the server."""
    with up(cwd=tmp_path) as server:
        body = b'{"offsets": [%d]}' % offset
        assert server.request("POST", "/v1/dead-letters/republish", body)[0] == 400


def test_a_number_that_no_offset_is_is_a_bad_request_everywhere(tmp_path: Path) -> None:
    """Beyond 2**63, negative, or none at all: 400 from every path that takes a number."""
    with up(cwd=tmp_path) as server:
        for number in (str(2**63), str(2**64), "1" + "0" * 30, "-1", "1e3", "x", "%D9%A3%E2%82%83"):
            for path in ("decisions?after=", "decisions?limit=", "dead-letters?after=", "dead-letters?limit="):
                assert server.request("GET", f"/v1/{path}{number}")[0] == 400, path + number
            stream = {"Accept": "text/event-stream", "Last-Event-ID": number}
            assert server.request("GET", "/v1/decisions", None, stream)[0] == 400, number
