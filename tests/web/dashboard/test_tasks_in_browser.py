"""Twelve things that people do with the pages, each in at most three clicks from the first page, in a real browser."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from browser_kit import browsing, visit
from command_line import Up
from dashboard_kit import failures
from planted_day import STUCK_SESSION, WORSE_TOOL, serving_a_planted_day
from playwright.sync_api import Browser, Locator, Page, expect

pytestmark = pytest.mark.slow

MOST_CLICKS = 3


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tasks."""
    with browsing() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server that has seen a fortnight of work, and agents that wait."""
    with serving_a_planted_day(tmp_path_factory.mktemp("served"), datetime.now(UTC)) as running:
        for tool in ("send_invoice", "print_label"):
            running.post("/v1/events", failures(tool, session=f"at-{tool}", workspace_id="team-1"))
        running.post("/v1/events", b"\n".join(_waits()))
        yield running


def _waits() -> Iterator[bytes]:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    about = {"schema_version": "1.0", "time": at, "session_id": "waits-1", "workspace_id": "team-1", "call_id": "w1"}
    about |= {"tool_name": "bash"}
    yield orjson.dumps(
        about | {"type": "tool_call.started", "id": "w1s", "args": {"command": "terraform apply -auto-approve"}}
    )
    yield orjson.dumps(about | {"type": "permission.requested", "id": "w1p"})


class Doing:
    """Somebody who begins at the first page; every click counts, and so does sending a form by Enter."""

    def __init__(self, page: Page) -> None:
        """Begin."""
        self.page = page
        self.clicks = 0

    def click(self, what: Locator) -> None:
        """Click once more."""
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS
        what.click()

    def go(self, name: str) -> None:
        """Follow the navigation."""
        self.click(self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True))

    def follow(self, name: str) -> None:
        """Follow a link by its words."""
        self.click(self.page.get_by_role("link", name=name).first)

    def search(self, text: str) -> None:
        """Type into the box at the top, and press Enter."""
        self.clicks += 1
        box = self.page.get_by_role("searchbox", name="Search commands, paths, errors and ids")
        box.fill(text)
        box.press("Enter")

    def row(self, text: str) -> Locator:
        """The row of the list with a text."""
        return self.page.locator("[data-row]", has_text=text).first


@contextmanager
def doing(browser: Browser, server: Up) -> Iterator[Doing]:
    """Somebody at the first page."""
    with visit(browser, server.url) as visitor:
        yield Doing(visitor.tab())


def test_the_cause_of_an_escalation(browser: Browser, server: Up) -> None:
    """The words of the error stand on the first page; one click leads to the failures that counted."""
    with doing(browser, server) as one:
        row = one.page.locator("[data-row]", has=one.page.locator(".state-escalated")).filter(has_text="send_invoice")
        expect(row).to_contain_text("internal error")
        one.click(row.get_by_role("link", name="Why"))
        expect(one.page.locator("h2", has_text="The events behind it")).to_be_visible()
        expect(one.page.locator("[data-row]", has_text="internal error")).to_have_count(3)


def test_the_repeated_call_of_a_stuck_session(browser: Browser, server: Up) -> None:
    """The call, how often, and with what result."""
    with doing(browser, server) as one:
        one.click(one.row(STUCK_SESSION).locator("[data-open]"))
        loops = one.page.locator("table", has_text="Wasted calls")
        expect(loops).to_contain_text("pytest tests/test_login.py")
        expect(loops).to_contain_text("×9")


def test_who_waits_for_a_person(browser: Browser, server: Up) -> None:
    """It stands first on the first page, with the call; a click leads there."""
    with doing(browser, server) as one:
        first = one.page.locator("#attention [data-row]").first
        expect(first).to_contain_text("waits-1")
        expect(first).to_contain_text("terraform apply")
        one.click(first.locator("[data-open]"))
        expect(one.page.locator("#timeline")).to_contain_text("terraform apply -auto-approve")


def test_a_session_by_a_string_of_its_command(browser: Browser, server: Up) -> None:
    """Search, and the link of the call leads to it."""
    with doing(browser, server) as one:
        one.search("tests/test_login")
        found = one.row(STUCK_SESSION)
        expect(found.locator("mark").first).to_have_text("tests/test_login")
        one.click(found.locator("[data-open]"))
        expect(one.page.locator(".row:target")).to_contain_text("pytest tests/test_login.py")


def test_what_other_thresholds_would_do(browser: Browser, server: Up) -> None:
    """A number in a form, and what would have been decided with it."""
    with doing(browser, server) as one:
        one.go("History")
        one.follow("What would other thresholds do?")
        one.page.get_by_label("A person is asked after").fill("1")
        one.click(one.page.get_by_role("button", name="Compare"))
        expect(one.page.locator("main table").first).to_contain_text("trust escalated", timeout=240_000)
        expect(one.page.locator("main")).to_contain_text("with these numbers")
        expect(one.page.locator("table", has_text="caught").first).to_contain_text(WORSE_TOOL)


def test_what_got_worse(browser: Browser, server: Up) -> None:
    """The tool, with the numbers of both weeks."""
    with doing(browser, server) as one:
        one.go("History")
        one.follow("What got worse?")
        expect(one.page.locator("main table").first).to_contain_text(WORSE_TOOL)


def test_what_loops_cost(browser: Browser, server: Up) -> None:
    """Calls and seconds that loops took."""
    with doing(browser, server) as one:
        one.go("History")
        one.follow("What do loops cost?")
        expect(one.page.locator("main table").first).to_contain_text("bash")
        expect(one.page.locator("main")).to_contain_text("wasted")


def test_approve_one_call(browser: Browser, server: Up) -> None:
    """One click, and the row says that a call is approved: the next reader does not do it again."""
    with doing(browser, server) as one:
        one.click(one.row("print_label").get_by_role("button", name="Approve once"))
        expect(one.page.locator("#said")).to_contain_text("print_label")
        expect(one.row("print_label")).to_contain_text("One call of print_label may pass until")


def test_reset_a_tool(browser: Browser, server: Up) -> None:
    """One click, and the key is trusted again."""
    server.post("/v1/events", failures("reset_me", times=6, session="r1", workspace_id="team-1"))
    with doing(browser, server) as one:
        one.click(one.row("reset_me").get_by_role("button", name="Reset"))
        expect(one.page.locator("#said")).to_contain_text("reset_me trusted again")
    states = server.get("/v1/state")["states"]
    assert not [one for one in states if one["kind"] == "trust" and one["key"] == "reset_me"]


def test_two_weeks_of_history(browser: Browser, server: Up) -> None:
    """This week beside the one before, for every tool and model."""
    with doing(browser, server) as one:
        one.go("History")
        one.follow("What changed since the time before?")
        row = one.page.locator("main table tr", has_text=WORSE_TOOL).first
        expect(row).to_contain_text("worse")
        expect(row).to_contain_text("points")


def test_share_a_view(browser: Browser, server: Up) -> None:
    """A link with absolute times shows the same to somebody else."""
    with doing(browser, server) as one:
        one.go("History")
        one.follow("What got worse?")
        one.follow("this time, fixed")
        one.page.wait_for_url("**until=**")
        shown, path = one.page.locator("main table").first.inner_text(), one.page.url.removeprefix(server.url)
    with visit(browser, server.url, width=400) as other:
        assert other.tab(path).locator("main table").first.inner_text().split() == shown.split()


def test_export_as_csv(browser: Browser, server: Up, tmp_path: Path) -> None:
    """The rows of a question as a file."""
    with doing(browser, server) as one:
        one.go("History")
        one.follow("What changed since the time before?")
        with one.page.expect_download() as waited:
            one.follow("These rows as CSV")
        waited.value.save_as(tmp_path / "rows.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))
    assert WORSE_TOOL in {row["name"] for row in rows}
