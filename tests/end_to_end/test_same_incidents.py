"""One trace, and the same incidents on Now, in the report, in `history now`, in `status --json`, and over HTTP."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from command_line import trustfold
from dashboard_kit import dashboard
from trustfold.streams.embedded.sign_in import RoleTokens

Told = list[tuple[str, str]]


def events(now: datetime) -> list[bytes]:
    """An outage of a service, a key that fails by itself, a loop, and a question that nobody has answered."""
    made: list[dict[str, Any]] = []

    def add(kind: str, session: str, **fields: Any) -> None:
        at = (now - timedelta(seconds=300 - len(made))).isoformat(timespec="milliseconds")
        own = {"schema_version": "1.0", "id": f"e{len(made)}", "type": kind, "time": at, "session_id": session}
        made.append(own | {"workspace_id": "team"} | fields)

    def fail(session: str, tool: str, args: dict[str, str], message: str, status: int | None = None) -> None:
        call = {"call_id": f"c{len(made)}", "tool_name": tool}
        add("tool_call.started", session, **call, args=args)
        add("tool_call.finished", session, **call, status="error", error={"http_status": status, "message": message})

    for number in range(9):
        tool = ("http_request", "fetch", "web_fetch")[number % 3]
        fail(f"agent-{number % 2}", tool, {"url": f"https://api.example.com/{number}"}, "Service Unavailable", 503)
    for number in range(4):
        fail(f"deploy-{number}", "bash", {"command": "make deploy"}, "error: the disk of the build server is full")
    for _ in range(7):
        fail("looping", "bash", {"command": "cat missing.txt"}, "cat: missing.txt: No such file or directory")
    add("tool_call.started", "asking", call_id="w1", tool_name="bash", args={"command": "git push"})
    add("permission.requested", "asking", call_id="w1", tool_name="bash")
    return list(map(orjson.dumps, made))


@pytest.mark.usefixtures("fixed_rules_file")
def test_every_surface_shows_the_same_incidents(tmp_path: Path) -> None:
    """State, subject, order and acknowledgement, most urgent first."""
    trace = events(datetime.now(UTC))
    orders: list[bytes] = []
    with dashboard(tmp_path, RoleTokens("", "orders")) as client:
        client.headers["authorization"] = "Bearer orders"
        assert client.post("/v1/events", content=b"\n".join(trace)).json()["dead_letters"] == 0
        acknowledge = {"schema_version": "1.0", "type": "incident.acknowledge", "workspace_id": "team"}
        for key in ("session:looping", "service:api.example.com"):
            order = acknowledge | {"id": key, "time": datetime.now(UTC).isoformat(), "key": key, "issued_by": "ada"}
            orders.append(orjson.dumps(order))
            assert client.post("/v1/commands", content=orders[-1]).status_code == 200
        page = client.get("/").text.replace("<wbr>", "")
        served = client.get("/v1/incidents").json()["incidents"]
    section = page[page.index('id="attention"') : page.index('id="tools"')]
    now: Told = [
        (state, subject)
        for state, subject in re.findall(r'state-([\w-]+)"><svg.*?data-open>([^<]+)</a>', section, re.DOTALL)
        if state in {"waiting", "blocked", "escalated", "stuck", "open", "half-open"}
    ]
    assert now[0] == ("waiting", "asking")
    assert ("escalated", "service:api.example.com") in now
    assert [(one["state"], one["subject"]) for one in served] == now
    store = str(tmp_path / "store.sqlite")
    status = orjson.loads(trustfold("status", "--store", store, "--json", cwd=tmp_path).stdout)["incidents"]
    assert [(one["state"], one["subject"]) for one in status] == now
    assert [one.get("orders") for one in status] == [one.get("orders") for one in served]
    noted = {one["subject"] for one in served if one.get("acknowledged_by") == "ada"}
    assert noted == {"looping", "service:api.example.com"} == {subject for _, subject in now[-2:]}
    assert {one["subject"] for one in status if "acknowledged" in one} == noted
    assert section.count("Acknowledged <time") == 2
    (tmp_path / "trace.ndjson").write_bytes(b"\n".join([*trace, *orders]))
    history = str(tmp_path / "history")
    trustfold("record", str(tmp_path / "trace.ndjson"), "--history", history, cwd=tmp_path)
    rows = orjson.loads(trustfold("history", "now", "--history", history, "--json", cwd=tmp_path).stdout)["rows"]
    assert [(one["state"], one["subject"]) for one in rows] == now
    assert [one["orders"] or None for one in rows] == [one.get("orders") for one in served]
    assert {one["subject"] for one in rows if one["acknowledged"]} == noted
    outage = next(one for one in rows if one["subject"] == "service:api.example.com")
    assert outage["cause"].startswith("HTTP 503: Service Unavailable; ")
    report = orjson.loads(trustfold("report", "--history", history, "--json", cwd=tmp_path).stdout)
    assert [one["subject"] for one in report["now"]] == [subject for _, subject in now]
