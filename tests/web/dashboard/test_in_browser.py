"""The pages in a real browser: what people see, press and are told, and that nothing goes wrong meanwhile."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest
from browser_kit import Visitor, barriers, browsing, focused, picture, too_wide, visit
from command_line import Up, up
from dashboard_kit import failures
from planted_day import HOSTILE_SESSION, HOSTILE_TOOL, MARKUP, STUCK_SESSION, serving_a_planted_day
from playwright.sync_api import Browser, Page, expect
from scenes import MAX_BYTES, SCENES, Scene, shoot

PAGES = {
    "now": "/",
    "now-all": "/?state=all",
    "now-nothing-matches": "/?q=nosuchkey",
    "sessions": "/sessions",
    "session": f"/sessions/{STUCK_SESSION}",
    "no-session": "/sessions/nobody",
    "decision": "/decisions/{decision}",
    "tools": "/tools",
    "tool": "/tools/http_request?workspace=team-1",
    "models": "/models?since=14d",
    "history": "/history",
    "question": "/history/tools?since=14d",
    "search": "/search?q=deploy",
    "what-if": "/history/whatif",
    "compare": "/history/compare",
    "sign-in": "/sign-in",
}

MISSING = {"no-session"}
"""Pages about what is not there: their status is 404."""

LOOKS = [(400, "dark"), (1400, "light")]
"""Each width and each theme: colours do not depend on the width."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    with browsing() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server that has seen a fortnight of work."""
    with serving_a_planted_day(tmp_path_factory.mktemp("served"), datetime.now(UTC)) as running:
        yield running


def path_of(server: Up, name: str) -> str:
    """Path of a page of `PAGES`."""
    path = PAGES[name]
    if "{decision}" in path:
        found = server.lines("/v1/decisions?topics=escalations&limit=1000")
        path = path.format(
            decision=quote(next(one["value"]["id"] for one in found if one["value"].get("to") == "escalated"), safe="")
        )
    return path


def opened(visitor: Visitor, server: Up, name: str) -> Page:
    """A page of `PAGES` in a tab."""
    page = visitor.tab(path_of(server, name), status=404 if name in MISSING else 200)
    expect(page.locator("h1")).to_be_visible()
    return page


def trust_in(server: Up, key: str) -> list[str]:
    """States of trust in a key that are away from the default."""
    return [one["state"] for one in server.get("/v1/state")["states"] if (one["kind"], one["key"]) == ("trust", key)]


def live(page: Page) -> None:
    """Wait until the page is told what changes."""
    expect(page.locator("html[data-live=open]")).to_be_attached()


# --- every page ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)  # all pages, on a busy machine
def test_pages_keep_nobody_out(browser: Browser, server: Up, subtests: pytest.Subtests) -> None:
    """axe-core finds nothing, narrow and wide, dark and light; no page must be scrolled sideways."""
    with visit(browser, server.url) as visitor:
        for name in PAGES:
            with subtests.test(name), opened(visitor, server, name) as page:
                for width, theme in LOOKS:
                    page.set_viewport_size({"width": width, "height": 900})
                    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
                    picture(page, f"{name}-{width}-{theme}")
                    assert barriers(page) + too_wide(page) == [], (width, theme)


def test_pages_work_without_scripts(server: Up, subtests: pytest.Subtests) -> None:
    """HTML of every page has its text and the links of its navigation."""
    for name in PAGES:
        with subtests.test(name):
            status, body = server.request("GET", path_of(server, name))
            assert status == (404 if name in MISSING else 200)
            main = re.search(rb'<main id="main".*</main>', body, re.DOTALL)
            assert main is not None
            assert re.sub(rb"<[^>]*>", b"", main[0]).strip()
            assert re.search(rb'<a [^>]*href="/tools"[^>]*>\s*Tools\s*</a>', body)


def test_a_picture_of_time_begins_at_its_newest_part(browser: Browser, server: Up) -> None:
    """Pictures wider than the page are scrolled to their right end; those that fit stand at the left."""
    with visit(browser, server.url, scripts=False) as visitor:
        page = opened(visitor, server, "tool")
        edges = """boxes => boxes.map(box => [box.getBoundingClientRect(), box.firstChild.getBoundingClientRect()])
            .map(([box, drawn]) => [drawn.width > box.width, drawn.right - box.right, drawn.left - box.left])"""
        for width, wider in ((400, True), (1400, False)):
            page.set_viewport_size({"width": width, "height": 900})
            page.reload()
            picture(page, f"newest-{width}-light")
            found = page.locator(".scroll.newest").evaluate_all(edges)
            assert found
            for too_wide_to_fit, right, left in found:
                assert too_wide_to_fit is wider
                assert abs(right if wider else left) < 1


# --- keyboard --------------------------------------------------------------------------------------------------------


def test_the_keyboard_skips_to_the_content(browser: Browser, server: Up) -> None:
    """The first stop of the tab key leads past the navigation."""
    with visit(browser, server.url) as visitor:
        page = visitor.tab()
        page.keyboard.press("Tab")
        expect(focused(page)).to_have_text("Skip to the content")
        page.keyboard.press("Enter")
        expect(focused(page)).to_have_attribute("id", "main")


def test_the_tab_key_reaches_every_order(browser: Browser, server: Up) -> None:
    """Each button that gives an order, and what has the keyboard can be seen to have it."""
    with visit(browser, server.url) as visitor:
        page = visitor.tab("/?state=escalated")
        orders = page.locator("form.orders button")
        expect(orders.first).to_be_visible()
        page.evaluate("document.querySelectorAll('form.orders button').forEach((one, at) => { one.dataset.at = at; })")
        reached = set()
        for _ in range(20 + 8 * orders.count()):
            page.keyboard.press("Tab")
            at = page.evaluate("document.activeElement.dataset.at ?? null")
            if at is not None:
                reached.add(int(at))
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            if len(reached) == orders.count():
                break
        assert reached == set(range(orders.count()))


@pytest.mark.slow
def test_keys_move_between_rows_and_pages(browser: Browser, server: Up) -> None:
    """By j and k between rows, by Enter into one, by g and a letter to a page; ? tells of them, and Esc closes that."""
    with visit(browser, server.url) as visitor:
        page = visitor.tab()
        rows = page.locator("[data-row]")
        for key, current in (("j", 0), ("j", 1), ("k", 0)):
            page.keyboard.press(key)
            expect(rows.nth(current)).to_have_attribute("data-current", "")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        target = rows.first.locator("[data-open]").get_attribute("href")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{target}")
        page.keyboard.press("g")
        page.keyboard.press("t")
        page.wait_for_url("**/tools")
        page.keyboard.press("/")
        expect(focused(page)).to_have_attribute("name", "q")
        page.goto(f"{server.url}/history")
        page.keyboard.press("/")
        expect(focused(page)).to_have_attribute("name", "since")


# --- live, orders ----------------------------------------------------------------------------------------------------


def test_what_happens_shows_by_itself(browser: Browser, server: Up) -> None:
    """A tool fails three times, and its row is there, without a reload."""
    with visit(browser, server.url) as visitor:
        page = visitor.tab("/?q=new_tool")
        live(page)
        page.evaluate("window.same = true")
        server.post("/v1/events", failures("new_tool", session="live-1", workspace_id="team-1"))
        expect(page.locator("[data-row]", has_text="new_tool").first).to_be_visible()
        assert page.evaluate("window.same")


def test_an_order_takes_effect(browser: Browser, server: Up) -> None:
    """The operator trusts a tool again: the page says so, its row goes, and the state is gone from the API."""
    server.post("/v1/events", failures("wrongly_accused", session="order-1", workspace_id="team-1"))
    with visit(browser, server.url) as visitor:
        page = visitor.tab("/?q=wrongly_accused")
        live(page)
        row = page.locator("[data-row]", has_text="wrongly_accused")
        row.first.get_by_role("button", name="Recover").click()
        expect(page.locator("#said")).to_contain_text("wrongly_accused")
        expect(page.locator("[data-row]", has_text="wrongly_accused").filter(has_text="escalated")).to_have_count(0)
    states = server.get("/v1/state")["states"]
    assert [one["state"] for one in states if one["key"] == "wrongly_accused" and one["kind"] == "trust"] != [
        "escalated"
    ]


@pytest.mark.slow
def test_a_reset_can_be_taken_back_and_no_row_moves(browser: Browser, server: Up) -> None:
    """It waits for some seconds; then its row says so where it stands, until the pointer has left the list."""
    for number in range(3):
        server.post("/v1/events", failures(f"tidy_{number}", times=6, session=f"tidy-{number}", workspace_id="tidy"))
    with visit(browser, server.url) as visitor:
        page = visitor.tab("/?q=tidy_&workspace=tidy")
        live(page)
        rows = page.locator("#attention [data-row]").filter(has=page.locator("a[href^='/tools/tidy_']"))
        expect(rows).to_have_count(3)
        middle, last = rows.nth(1), rows.nth(2)
        key, place = middle.locator("[data-open]").inner_text(), last.bounding_box()
        middle.get_by_role("button", name="Reset").click()
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#said")).to_have_text(f"Not done: Reset, {key}")
        assert trust_in(server, key) == ["escalated"]
        middle.get_by_role("button", name="Reset").click()
        expect(page.locator("#said")).to_contain_text("reset by an operator")
        expect(middle).to_contain_text("done")
        assert last.bounding_box() == place
        page.mouse.move(1, 1)
        expect(rows).to_have_count(2)
    assert trust_in(server, key) == []


def test_an_order_takes_effect_without_scripts(browser: Browser, server: Up) -> None:
    """The form alone does it, and leads back."""
    server.post("/v1/events", failures("plain_form", session="order-2", workspace_id="team-1"))
    with visit(browser, server.url, scripts=False) as visitor:
        page = visitor.tab("/?q=plain_form")
        page.locator("[data-row]", has_text="plain_form").first.get_by_role("button", name="Recover").click()
        expect(page.locator("#main")).to_contain_text("plain_form")
    assert trust_in(server, "plain_form") != ["escalated"]


@pytest.mark.slow
def test_seven_tabs_leave_room_for_an_order(browser: Browser, server: Up) -> None:
    """A browser opens six connections to a host: tabs in the background give theirs back."""
    server.post("/v1/events", failures("seventh", session="order-3", workspace_id="team-1"))
    with visit(browser, server.url) as visitor:
        tabs = [visitor.tab("/?q=seventh") for _ in range(7)]
        tabs[-1].bring_to_front()
        tabs[-1].locator("[data-row]", has_text="seventh").first.get_by_role("button", name="Recover").click()
        expect(tabs[-1].locator("#said")).to_contain_text("seventh")


@pytest.mark.slow
def test_a_page_finds_its_server_again(browser: Browser, tmp_path: Path) -> None:
    """The server stops and comes back with news: the page says that it waits, is live again, and has them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with up("--port", port, cwd=tmp_path) as first, closing(Visitor(browser, first.url)) as visitor:
        page = visitor.tab()
        live(page)
        assert first.stop() == 0
        expect(page.locator("html[data-live=reconnecting], html[data-live=stale]")).to_be_attached()
        with up("--port", port, cwd=tmp_path) as second:
            second.post("/v1/events", failures("meanwhile"))
            live(page)
            expect(page.locator("[data-row]", has_text="meanwhile").first).to_be_visible()


# --- what others planted ---------------------------------------------------------------------------------------------


PLANTED = (
    "/?state=all",
    "/sessions",
    f"/sessions/{quote(HOSTILE_SESSION, safe='')}",
    "/tools",
    f"/tools/{quote(HOSTILE_TOOL, safe='')}?workspace=team-1",
    "/models",
)


@pytest.mark.slow
def test_planted_markup_stays_text(browser: Browser, server: Up, subtests: pytest.Subtests) -> None:
    """Names, arguments and messages that are HTML are read, never run; text that would turn others around is shown."""
    with visit(browser, server.url) as visitor:
        for path in PLANTED:
            with subtests.test(path), visitor.tab(path) as page:
                expect(page.locator("#main")).to_contain_text(MARKUP if "models" not in path else f"model-{MARKUP}")
                assert page.evaluate("window.planted") is None
                assert page.locator("#main img").count() == 0
                assert "\u202e" not in page.content()


# --- the documents' pictures -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
def test_the_pictures_of_the_documents_can_be_taken_again(
    browser: Browser, server: Up, scene: Scene, tmp_path: Path
) -> None:
    """The page is there over the same data, and shows what the picture is for."""
    assert shoot(browser, server.url, scene, tmp_path).stat().st_size <= MAX_BYTES
