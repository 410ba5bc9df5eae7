"""The pages in a real browser: what people see, press and are told, and that nothing goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from browser_kit import barriers, browsing, picture, too_wide, visit
from command_line import Up, up
from planted_day import planted_day
from playwright.sync_api import Browser

PAGES = {
    "now": "/",
    "sessions": "/sessions",
    "tools": "/tools",
    "models": "/models",
    "history": "/history",
    "sign-in": "/sign-in",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    with browsing() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server that has seen a fortnight of work."""
    folder = tmp_path_factory.mktemp("served")
    with up(cwd=folder) as running:
        records = planted_day(datetime.now(UTC))
        body = b"\n".join(value for _, value in records)
        assert running.post("/v1/events", body)["dead_letters"] == 0
        yield running


@pytest.mark.parametrize("name", PAGES)
def test_pages_keep_nobody_out(browser: Browser, server: Up, name: str) -> None:
    """axe-core finds nothing at either width and in either theme, and no page must be scrolled sideways."""
    found = {}
    for width in (1400, 400):
        for theme in ("light", "dark"):
            with visit(browser, server.url, width=width, theme=theme) as visitor:
                page = visitor.tab(PAGES[name])
                picture(page, f"{name}-{width}-{theme}")
                found[width, theme] = barriers(page) + too_wide(page)
    assert found == {place: [] for place in found}
