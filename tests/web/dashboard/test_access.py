"""Who may see the pages, how a browser signs in, and what guards every answer."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from dashboard_kit import dashboard, failures
from starlette.testclient import TestClient
from trustfold.errors import TrustfoldError
from trustfold.streams.embedded.sign_in import (
    FORGOTTEN_S,
    FREE_TRIES,
    LONGEST_WAIT_S,
    MAX_ADDRESSES,
    SIGNED_IN_S,
    RequestRole,
    RoleTokens,
    SignIns,
)
from trustfold.web.dashboard.render import CSP, segment
from trustfold.web.dashboard.session import TimelineCache

BOTH = RoleTokens("reads", "orders")
PATHS = ("/", "/sessions", "/sessions/s1", "/tools", "/tools/tool:bash", "/models", "/history", "/sign-in")


def form_token(client: TestClient) -> str:
    """What a form on a page carries now."""
    found = re.search(r'name="form_token" value="(\w+)"', client.get("/sign-in").text)
    assert found is not None
    return found[1]


def sign_in(client: TestClient, token: str, onward: str = "/") -> None:
    """Sign in as a browser does."""
    fields = {"token": token, "next": onward, "form_token": form_token(client)}
    answer = client.post("/sign-in", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, onward)


def test_every_page_answers_and_is_guarded(tmp_path: Path) -> None:
    """On this machine without a token; no script or style stands inside of a page."""
    with dashboard(tmp_path) as client:
        client.post("/v1/events", content=failures("bash"), headers={"content-type": "application/x-ndjson"})
        for path in PATHS:
            answer = client.get(path)
            assert answer.status_code == 200, path
            assert answer.headers["content-security-policy"] == CSP
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"
            assert answer.headers["cache-control"] == "no-store"
            assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", answer.text), path
            assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.text), path
    assert "unsafe" not in CSP


def test_a_browser_without_a_token_is_asked_to_sign_in(tmp_path: Path) -> None:
    """And comes back to the page that it wanted; a program gets the words that it always got."""
    with dashboard(tmp_path, BOTH) as client:
        asked = client.get("/tools?workspace=a", headers={"accept": "text/html"})
        assert (asked.status_code, asked.headers["location"]) == (303, "/sign-in?asked=1&next=/tools%3Fworkspace%3Da")
        assert client.get("/live").status_code == 401
        assert client.get("/v1/state").status_code == 401
        sign_in(client, "reads", "/tools?workspace=a")
        assert client.get("/tools").status_code == 200


def test_a_name_comes_back_from_signing_in_as_it_was(tmp_path: Path) -> None:
    """A `?` of a tool's name does not become a query string on the way."""
    with dashboard(tmp_path, BOTH) as client:
        asked = client.get("/tools/a%3Fb%23c?since=1d", headers={"accept": "text/html"})
        onward = parse_qs(urlsplit(asked.headers["location"]).query)["next"]
        assert onward == ["/tools/a%3Fb%23c?since=1d"]


@pytest.mark.parametrize("name", ["a?b#c", "100%25", "a/../b", "plain/a b"])
def test_a_page_names_itself_by_the_path_that_leads_to_it(tmp_path: Path, name: str) -> None:
    """Whatever the name of its tool has in it that means something in a URL."""
    with dashboard(tmp_path, BOTH) as client:
        client.headers["authorization"] = "Bearer reads"
        client.post("/v1/events", content=failures(name, 5))
        url = f"/tools/{segment(name)}?tz=UTC"
        assert ".." not in url.split("/")
        found = re.search(r'href="(/sign-in[^"]*)"', client.get(url).text)
        assert found is not None
        assert parse_qs(urlsplit(unescape(found[1])).query)["next"] == [url]


def test_the_cookie_counts_for_pages_alone(tmp_path: Path) -> None:
    """No page of another site can use it at the API, even that of an operator."""
    with dashboard(tmp_path, BOTH) as client:
        sign_in(client, "orders")
        assert client.get("/").status_code == 200
        assert client.get("/v1/state").status_code == 401
        assert client.post("/v1/commands", content=b"{}").status_code == 401


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(tmp_path: Path) -> None:
    """HttpOnly and SameSite=Strict; the token itself is not in it."""
    with dashboard(tmp_path, BOTH) as client:
        fields = {"token": "orders", "next": "/", "form_token": form_token(client)}
        cookie = client.post("/sign-in", data=fields).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert f"Max-Age={SIGNED_IN_S}" in cookie
    assert "orders" not in cookie


def test_a_wrong_token_is_refused(tmp_path: Path) -> None:
    """Without a cookie."""
    with dashboard(tmp_path, BOTH) as client:
        answer = client.post("/sign-in", data={"token": "nope", "next": "/", "form_token": form_token(client)})
        assert answer.status_code == 403
        assert "no such token" in answer.text
        assert "set-cookie" not in answer.headers


def test_signing_in_leads_to_this_server_alone(tmp_path: Path) -> None:
    """Whatever the link said."""
    with dashboard(tmp_path, BOTH) as client:
        for onward in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
            fields = {"token": "reads", "next": onward, "form_token": form_token(client)}
            assert client.post("/sign-in", data=fields).headers["location"] == "/"
            client.cookies.clear()


def test_a_form_without_our_token_is_refused(tmp_path: Path) -> None:
    """And one that the browser says another site has sent."""
    with dashboard(tmp_path, BOTH) as client:
        assert client.post("/sign-in", data={"token": "reads", "form_token": "0" * 32}).status_code == 403
        fields = {"token": "reads", "form_token": form_token(client)}
        assert client.post("/sign-in", data=fields, headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert client.post("/sign-in", data=fields, headers={"origin": "http://evil.example"}).status_code == 403


def test_signing_out_ends_the_cookie(tmp_path: Path) -> None:
    """Also for somebody who kept a copy of it."""
    with dashboard(tmp_path, BOTH) as client:
        sign_in(client, "orders")
        kept = dict(client.cookies)
        assert client.post("/sign-out", data={"form_token": form_token(client)}).status_code == 303
        client.cookies.clear()
        client.cookies.update(kept)
        assert client.get("/").status_code == 401


def test_a_cookie_ends_by_itself() -> None:
    """After a working day; and one of another process, or with another role written into it, never counts."""
    time = [1000.0]
    ours = SignIns(BOTH, lambda: time[0])
    cookie = ours.cookie_for("reads")
    assert cookie is not None
    assert ours.role_of(cookie) is RequestRole.READER
    assert ours.role_of(cookie.replace("reader", "operator")) is None
    assert SignIns(BOTH).role_of(cookie) is None
    assert ours.role_of("") is None
    time[0] += SIGNED_IN_S
    assert ours.role_of(cookie) is None


def test_styles_and_scripts_are_kept_by_browsers(tmp_path: Path) -> None:
    """Their addresses change with their content; they need no token, and hold nothing of anybody."""
    with dashboard(tmp_path, BOTH) as client:
        page = client.get("/sign-in").text
        found = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
        assert len(found) == 6
        for path in found:
            answer = client.get(path)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]
        assert client.get("/static/nothing.js").status_code == 404
        assert client.get("/static/../render.py").status_code == 401


def test_a_page_that_cannot_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words on a page, with the status for programs; not as a bare error."""

    def broken(*_: object, **__: object) -> None:
        raise TrustfoldError("the store cannot be read; free some space")

    monkeypatch.setattr("trustfold.web.dashboard.now.now_page", broken)
    with dashboard(tmp_path) as client:
        answer = client.get("/")
    assert answer.status_code == 503
    assert "<h1>This cannot be shown</h1>" in answer.text
    assert "free some space" in answer.text


def test_tries_to_guess_a_token_are_slowed_for_their_address_alone() -> None:
    """Five wrong tokens are free; then one counts per wait, which doubles up to its limit, and is over in the end."""
    time = [1000.0]
    ours = SignIns(BOTH, lambda: time[0])
    for _ in range(FREE_TRIES):
        assert ours.wait_s("10.0.0.1") == 0
        ours.missed("10.0.0.1")
    waits = []
    for _ in range(6):
        waits.append(ours.wait_s("10.0.0.1"))
        time[0] += waits[-1]
        assert ours.wait_s("10.0.0.1") == 0
        ours.missed("10.0.0.1")
    assert waits == [1, 2, 4, 8, LONGEST_WAIT_S, LONGEST_WAIT_S]
    assert ours.wait_s("10.0.0.2") == 0
    time[0] += FORGOTTEN_S
    assert ours.wait_s("10.0.0.1") == 0


def test_addresses_that_guess_are_remembered_within_bounds() -> None:
    """Somebody with many addresses takes no memory from the server."""
    ours = SignIns(BOTH, lambda: 1000.0)
    for number in range(MAX_ADDRESSES + 5):
        ours.missed(f"10.0.{number >> 8}.{number & 255}")
    assert len(ours._missed) == MAX_ADDRESSES


def test_after_wrong_tokens_the_page_says_how_long_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the right one waits: else an answer would tell a guess that was right."""
    with dashboard(tmp_path, BOTH) as client:
        carried = form_token(client)
        for _ in range(FREE_TRIES):
            assert client.post("/sign-in", data={"token": "nope", "form_token": carried}).status_code == 403
        answer = client.post("/sign-in", data={"token": "orders", "form_token": carried})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert "try again in 1 second" in answer.text
        monkeypatch.setattr(SignIns, "wait_s", lambda *_: 0.0)
        sign_in(client, "orders")


def test_an_unknown_address_is_a_page_to_a_browser_and_json_to_a_program(tmp_path: Path) -> None:
    """The page has the frame of all pages and their guarding headers."""
    with dashboard(tmp_path) as client:
        page = client.get("/nothing/here", headers={"accept": "text/html,*/*"})
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "There is no page /nothing/here" in page.text
        assert 'href="/sessions"' in page.text
        assert page.headers["content-security-policy"] == CSP
        for path, accept in (("/nothing/here", "*/*"), ("/v1/nothing", "text/html")):
            answer = client.get(path, headers={"accept": accept})
            assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})
        assert client.get("/v1/events", headers={"accept": "text/html"}).status_code == 405


def test_a_document_that_cannot_be_read_says_so_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers are programs."""

    async def fail(*_: object, **__: object) -> None:
        raise TrustfoldError("the store is busy")

    with dashboard(tmp_path) as client:
        monkeypatch.setattr(TimelineCache, "timeline", fail)
        answer = client.get("/v1/sessions/s1", headers={"accept": "text/html"})
        assert (answer.status_code, answer.json()) == (503, {"error": "the store is busy"})
        assert client.get("/sessions/s1").headers["content-type"].startswith("text/html")
