"""Chromium over the pages of a running `trustfold up`: what a visitor sees, and all that must not happen meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Route, expect, sync_playwright

REQUIRED = "TRUSTFOLD_REQUIRE_BROWSER"
SCREENSHOTS = "TRUSTFOLD_SCREENSHOTS"
"""Folder that pictures of the pages are left in; by default nowhere."""

PATIENCE_MS = 30_000
"""A bound for things that take milliseconds on a machine with nothing else to do."""

RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
"""What axe-core looks for: WCAG 2.2, levels A and AA."""

_TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`content security policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""

_AXE = """
async (rules) => (await axe.run(document, {runOnly: rules, resultTypes: ["violations"]})).violations.map(
  (one) => `${one.id}: ${one.help}: ` + one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(" | "))
"""

_TOO_WIDE = """
() => {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) return [];
  const wide = [...document.body.querySelectorAll("*")].filter((one) => one.getBoundingClientRect().right > room + 1);
  return [`page is ${document.documentElement.scrollWidth} px wide in ${room} px`]
    .concat(wide.slice(0, 5).map((one) => one.outerHTML.slice(0, 160)));
}
"""


def chromium() -> str:
    """Path of Debian's Chromium; skips where there is none, or fails where there must be one."""
    found = shutil.which("chromium")
    if found is None:
        missing = "no chromium here (Debian: apt-get install chromium)"
        if os.environ.get(REQUIRED):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return found


@contextmanager
def browsing() -> Iterator[Browser]:
    """A headless Chromium; `Visitor` opens tabs in it."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        # The sandbox of Chromium needs rights that containers withhold, and root has none to lose.
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """Somebody with a browser of a width and a theme, and what went wrong in any of their tabs.

    Attributes:
        faults: errors of scripts and of the console, violations of the content security policy, requests to other
            hosts, dialogs, and answers with an unexpected status.
    """

    def __init__(
        self,
        browser: Browser,
        url: str,
        *,
        width: int = 1400,
        height: int = 900,
        theme: str = "light",
        scripts: bool = True,
    ) -> None:
        """Come to the server at `url`."""
        self.url = url.rstrip("/")
        self.faults: list[str] = []
        self._expected: set[str] = set()
        self._context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            java_script_enabled=scripts,
            locale="en-GB",
            timezone_id="UTC",
            reduced_motion="reduce",
        )
        self._context.set_default_timeout(PATIENCE_MS)
        self._context.add_init_script(_TELL_VIOLATIONS)
        self._context.route(lambda address: not self._is_here(address), self._refuse)
        self._context.on("console", self._listen)
        self._context.on("weberror", lambda error: self.faults.append(f"script: {error.error}"))
        self._context.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def tab(self, path: str = "/", *, status: int = 200) -> Page:
        """Open a page in a tab of its own; its answer has the status."""
        page = self._context.new_page()
        if status != 200:
            self._expected.add(self.url + path)
        answer = page.goto(self.url + path, wait_until="load")
        if answer is None or answer.status != status:
            self.faults.append(f"{path}: status {answer and answer.status}")
        return page

    def close(self) -> None:
        """Close all tabs."""
        self._context.close()

    def _is_here(self, address: str) -> bool:
        here, there = urlsplit(self.url), urlsplit(address)
        return (here.scheme, here.netloc) == (there.scheme, there.netloc)

    def _refuse(self, route: Route, request: Request) -> None:
        self.faults.append(f"request to another host: {request.url}")
        route.abort()

    def _listen(self, message: ConsoleMessage) -> None:
        at = message.location.get("url", "")
        if message.type in {"error", "warning"} and at not in self._expected:
            self.faults.append(f"console: {message.text} ({at})")


@contextmanager
def visit(browser: Browser, url: str, **options: Any) -> Iterator[Visitor]:
    """A visitor to whom nothing may go wrong."""
    visitor = Visitor(browser, url, **options)
    try:
        yield visitor
        assert visitor.faults == []
    finally:
        visitor.close()


def barriers(page: Page) -> list[str]:
    """What axe-core says keeps people out of a page: rule, words and the first elements."""
    # Injected from outside, so that the page's own policy stays as it is.
    if not page.evaluate("'axe' in window"):
        page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found: list[str] = page.evaluate(_AXE, list(RULES))
    return found


def too_wide(page: Page) -> list[str]:
    """What makes a page wider than its window; empty where nothing does."""
    found: list[str] = page.evaluate(_TOO_WIDE)
    return found


def focused(page: Page) -> Locator:
    """The element that has the keyboard."""
    return page.locator(":focus")


def picture(page: Page, name: str) -> None:
    """Leave a picture of the whole page in the folder of screenshots, where one is wanted."""
    if folder := os.environ.get(SCREENSHOTS):
        Path(folder).mkdir(parents=True, exist_ok=True)
        # What is beyond the window is laid out when it is scrolled to; a picture of all of it needs all of it.
        page.evaluate("for (const one of document.querySelectorAll('.row')) one.style.contentVisibility = 'visible'")
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)
