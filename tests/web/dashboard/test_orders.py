"""Orders from a page: for operators alone, from our own pages alone, once, and the same as at the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from dashboard_kit import before, dashboard, failures
from fixed_rules import TO_OPEN
from starlette.testclient import TestClient
from trustfold.errors import TrustfoldError
from trustfold.projections.incidents import of_family
from trustfold.schemas.public_state import PublicState, public_state
from trustfold.streams.embedded.sign_in import RoleTokens
from trustfold.web.dashboard.order_labels import ORDERS, orders_for
from trustfold.web.dashboard.orders import FormOrder, records_for

AT = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A server with a token for everybody, and one of the operator."""
    with dashboard(tmp_path, RoleTokens("reads", "orders")) as made:
        yield made


def fields_of(page: str, key: str) -> dict[str, str]:
    """The hidden fields of the form about a key, as a browser would send them."""
    for form in re.findall(r'<form class="orders".*?</form>', page, re.DOTALL):
        found = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
        if found["key"] == key:
            return {name: value for name, value in found.items() if name != "order"}
    pytest.fail(f"no form about {key}")


def sign_in(client: TestClient, token: str) -> None:
    """Sign in as a browser does."""
    found = re.search(r'name="form_token" value="(\w+)"', client.get("/sign-in").text)
    assert found is not None
    client.post("/sign-in", data={"token": token, "next": "/", "form_token": found[1]})


def let_fail(client: TestClient, tool: str = "deploy", times: int = 3, **fields: str) -> None:
    """Let a tool fail."""
    headers = {"authorization": "Bearer reads"}
    assert client.post("/v1/events", content=failures(tool, times, **fields), headers=headers).status_code == 200


def states(client: TestClient) -> dict[str, str]:
    """State of each key, as the API says."""
    answer = client.get("/v1/state", headers={"authorization": "Bearer reads"}).json()["states"]
    return {f"{one['kind']}:{one['key']}": one.get("state", "") for one in answer}


def test_an_operator_gives_an_order_and_sees_its_effect(client: TestClient) -> None:
    """Without a script: the answer is a page that says what moved."""
    let_fail(client)
    sign_in(client, "orders")
    fields = fields_of(client.get("/").text, "deploy")
    answer = client.post("/orders", data=fields | {"order": "recover"})
    assert answer.status_code == 200
    assert "deploy trusted again" in answer.text
    assert 'role="status"' in answer.text
    assert "trust:deploy" not in states(client)


def test_with_a_script_the_answer_is_a_part_of_the_page(client: TestClient) -> None:
    """It goes into the status line."""
    let_fail(client)
    sign_in(client, "orders")
    fields = fields_of(client.get("/").text, "deploy")
    answer = client.post("/orders", data=fields | {"order": "approve"}, headers={"hx-request": "true"})
    assert answer.text.startswith('<div id="said" hx-swap-oob="innerHTML">')
    assert "one call may pass" in answer.text


def test_a_double_click_is_one_order(client: TestClient) -> None:
    """The second time nothing moves, whatever has happened meanwhile."""
    let_fail(client)
    sign_in(client, "orders")
    fields = fields_of(client.get("/").text, "deploy") | {"order": "recover"}
    assert "trusted again" in client.post("/orders", data=fields).text
    headers = {"authorization": "Bearer reads"}
    later = failures("deploy", 3, session="s2", time=before(0))
    assert client.post("/v1/events", content=later, headers=headers).status_code == 200
    assert states(client)["trust:deploy"] == "escalated"
    assert "trusted again" not in client.post("/orders", data=fields).text
    assert states(client)["trust:deploy"] == "escalated"


def test_a_reader_is_refused_politely(client: TestClient) -> None:
    """And sees no buttons; the answer says what would help."""
    let_fail(client)
    sign_in(client, "reads")
    page = client.get("/").text
    assert 'class="orders"' not in page
    found = re.search(r'name="form_token" value="(\w+)"', page)
    assert found is not None
    fields = {"order": "reset", "key": "deploy", "workspace": "", "number": "1", "form_token": found[1]}
    answer = client.post("/orders", data=fields)
    assert answer.status_code == 403
    assert "operator&#39;s token" in answer.text
    assert states(client)["trust:deploy"] == "escalated"


def test_other_pages_give_no_orders(client: TestClient) -> None:
    """Neither with the cookie alone, nor with what a browser says of another site; and nothing is ordered by GET."""
    let_fail(client)
    sign_in(client, "orders")
    fields = fields_of(client.get("/").text, "deploy") | {"order": "reset"}
    assert client.post("/orders", data=fields | {"form_token": "f" * 32}).status_code == 403
    assert client.post("/orders", data=fields, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/orders", data=fields, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/orders", params=fields).status_code == 405
    assert states(client)["trust:deploy"] == "escalated"


def test_nobody_gives_orders_without_an_operator(tmp_path: Path) -> None:
    """Where the server has no token at all, a page of this machine reads, and says how orders come about."""
    with dashboard(tmp_path) as client:
        assert client.post("/v1/events", content=failures("deploy")).status_code == 200
        assert 'class="orders"' not in client.get("/").text
        found = re.search(r'name="form_token" value="(\w+)"', client.get("/sign-in").text)
        assert found is not None
        fields = {"order": "reset", "key": "deploy", "number": "1", "form_token": found[1]}
        answer = client.post("/orders", data=fields)
        assert answer.status_code == 403
        assert "TRUSTFOLD_OPERATOR_TOKEN" in answer.text


def test_a_circuit_is_opened_and_closed(client: TestClient) -> None:
    """Until the next order."""
    let_fail(client, times=TO_OPEN)
    sign_in(client, "orders")
    fields = fields_of(client.get("/tools/deploy").text, "tool:deploy")
    client.post("/orders", data=fields | {"order": "open"})
    assert states(client)["breaker:tool:deploy"] == "forced_open"
    client.post("/orders", data=fields | {"order": "close"})
    assert "breaker:tool:deploy" not in states(client)


def test_a_pattern_is_called_a_false_alarm(client: TestClient) -> None:
    """The session's nudges about it stop; the alarm is counted, once."""
    let_fail(client, times=TO_OPEN)
    sign_in(client, "orders")
    fields = fields_of(client.get("/").text, "s1")
    answer = client.post("/orders", data=fields | {"order": "false-alarm"})
    assert answer.status_code == 200
    assert "noted as a false alarm" in answer.text


def rows_of(client: TestClient) -> list[str]:
    """Keys of the list, worst first."""
    return re.findall(r'href="/tools/([a-z]+)[^"]*" data-open', client.get("/").text)


def test_an_acknowledged_incident_stands_below_the_others_until_it_is_worse(tmp_path: Path) -> None:
    """Also after a restart. Its row says since when and by whom, and offers no second acknowledgement."""
    with dashboard(tmp_path, RoleTokens("reads", "orders")) as client:
        let_fail(client, "deploy")
        let_fail(client, "invoice")
        sign_in(client, "orders")
        first, second = rows_of(client)
        answer = client.post("/orders", data=fields_of(client.get("/").text, first) | {"order": "acknowledge"})
        assert "below the others" in answer.text
    with dashboard(tmp_path, RoleTokens("reads", "orders")) as client:
        sign_in(client, "orders")
        assert rows_of(client) == [second, first]
        row = client.get(f"/?q={first}").text.partition('id="attention"')[2]
        assert re.search("Acknowledged <time.*</time> by dashboard", row)
        assert 'value="acknowledge"' not in row
        again = failures(first, 1, session="s2", time=before(0))
        assert client.post("/v1/events", content=again, headers={"authorization": "Bearer reads"}).status_code == 200
        assert rows_of(client) == [second, first]
        assert "1 more failure that counts" in client.get("/").text
        answer = client.post("/orders", data=fields_of(client.get("/").text, first) | {"order": "withdraw"})
        assert "nobody deals with it" in answer.text
        assert rows_of(client) == [first, second]
        client.post("/orders", data=fields_of(client.get("/").text, first) | {"order": "recover"})
        let_fail(client, first, session="s3", time=before(0))
        assert rows_of(client) == [first, second]
        gone = fields_of(client.get("/").text, first) | {"order": "acknowledge", "row": "row0"}
        assert "needs nobody any more" in client.post("/orders", data=gone).text


def test_a_row_says_when_it_was_seen_last_and_how_often_in_the_hour(client: TestClient) -> None:
    """On Now; the page of a key offers no acknowledgement, as the key may be a part of an incident."""
    let_fail(client, time=before(600))
    sign_in(client, "orders")
    later = failures("deploy", 1, session="s2", time=before(120))
    assert client.post("/v1/events", content=later, headers={"authorization": "Bearer reads"}).status_code == 200
    row = client.get("/").text.partition('id="attention"')[2].partition("</li>")[0]
    since = re.search(r'class="now-since quiet">(.*?)</span>', row)
    assert since is not None
    assert re.findall(r">(\d+) (min|s) ago<", since[1]) == [("10", "min"), ("2", "min")]
    assert 'aria-label="4 failures that count, in the last hour"' in row
    assert 'value="acknowledge"' in row
    assert 'value="acknowledge"' not in client.get("/tools/deploy").text


def test_who_may_not_read_is_told_nothing_of_the_store(client: TestClient) -> None:
    """On the page that asks for the token."""
    page = client.get("/sign-in").text
    assert "You may read" not in page
    assert "store.sqlite" not in page
    assert 'id="freshness"' not in page
    assert "data-region" not in page  # nothing that its script would follow


def test_an_order_that_cannot_be_read_is_refused(client: TestClient) -> None:
    """In words."""
    let_fail(client)
    sign_in(client, "orders")
    fields = fields_of(client.get("/").text, "deploy") | {"order": "reset"}
    for wrong in ({"order": "destroy"}, {"key": ""}, {"number": "../1"}):
        assert client.post("/orders", data=fields | wrong).status_code == 400


NOW_MS = 1_795_348_800_000
TOOLS = ("http_request", "fetch", "web_fetch")
ENVELOPE = {"schema_version": "1.0", "id": "s1", "time": "2026-11-22T00:00:00.000Z", "workspace_id": "w"}


def trust(key: str, state: str = "escalated", **more: Any) -> PublicState:
    """A public state of trust."""
    return public_state(ENVELOPE | {"kind": "trust", "key": key, "scope": "tool", "state": state} | more)


def test_orders_are_those_of_the_command_line() -> None:
    """An order for a tool reaches its keys by one command and closes its circuit; one for a key is about that alone."""
    circuit = public_state(ENVELOPE | {"kind": "breaker", "key": "tool:bash", "state": "open"})
    known = [trust("bash|command=git"), trust("bash|command=rm"), circuit, trust("other")]
    whole = records_for(FormOrder("reset", "bash", "w", "n"), known, AT)
    assert [(type(one).__name__, one.key) for one in whole] == [("TrustReset", "bash"), ("BreakerClose", "tool:bash")]  # type: ignore[union-attr]
    fine = records_for(FormOrder("recover", "bash|command=git", "w", "n"), known, AT)
    assert [(type(one).__name__, one.key) for one in fine] == [("TrustRecover", "bash|command=git")]  # type: ignore[union-attr]
    assert len({one.id for one in whole}) == len(whole)
    with pytest.raises(TrustfoldError, match="nothing is held"):
        records_for(FormOrder("reset", "unknown", "w", "n"), known, AT)


def test_every_offered_order_exists() -> None:
    """For every state that there is; none for what holds for a user everywhere."""
    words = ("blocked", "escalated", "recovering", "removed", "trusted")
    records: list[dict[str, Any]] = [{"kind": "trust", "state": word} for word in words]
    records += [{"kind": "breaker", "state": word} for word in ("open", "half_open", "closed", "forced_open")]
    records += [{"kind": "quality", "score": 0.1, "registered_score": 1.0}, {"kind": "model"}]
    for record in records:
        for one in of_family([public_state(ENVELOPE | {"key": "k"} | record)], NOW_MS):
            assert set(orders_for(one)) <= set(ORDERS)
        for one in of_family([public_state(ENVELOPE | {"key": "k", "scope": "user"} | record)], NOW_MS):
            assert orders_for(one) == ()


def test_one_order_resolves_all_of_an_outage(client: TestClient) -> None:
    """Keys of a service and its circuit: the row has one form, and its reset leaves nothing behind."""
    for number in range(9):
        call = {"schema_version": "1.0", "session_id": "s1", "call_id": f"c{number}", "tool_name": TOOLS[number % 3]}
        start = call | {"id": f"b{number}", "type": "tool_call.started", "time": before(40 - 2 * number)}
        start["args"] = {"url": "https://api.example.com/x"}
        end = call | {"id": f"e{number}", "type": "tool_call.finished", "time": before(39 - 2 * number)}
        end |= {"status": "error", "error": {"http_status": 503, "message": "Service Unavailable"}}
        told = b"\n".join(map(orjson.dumps, (start, end)))
        assert client.post("/v1/events", content=told, headers={"authorization": "Bearer reads"}).status_code == 200
    sign_in(client, "orders")
    of_service = {key for key in states(client) if "api.example.com" in key}
    assert len(of_service) >= 4
    page = client.get("/").text.replace("<wbr>", "")
    rows = re.findall(r"data-open>([^<]+)</a>", page)
    assert rows == ["service:api.example.com", "s1"]
    client.post("/orders", data=fields_of(page, "service:api.example.com") | {"order": "reset"})
    assert not of_service & {key for key, state in states(client).items() if state not in {"", "trusted"}}


def test_two_forms_of_a_page_never_take_each_others_number(client: TestClient) -> None:
    """Else the second order would pass for a repetition of the first."""
    let_fail(client, "one", times=TO_OPEN)
    let_fail(client, "two", times=TO_OPEN)
    sign_in(client, "orders")
    numbers = re.findall(r'name="number" value="([^"]*)"', client.get("/").text)
    assert len(numbers) >= 3
    assert len(set(numbers)) == len(numbers)
