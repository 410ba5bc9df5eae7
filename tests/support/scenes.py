"""The pictures of the documents: which page each shows, in what look, and what must be on it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from browser_kit import Visitor
from planted_day import STUCK_SESSION, WORSE_TOOL
from playwright.sync_api import Browser, expect

IMAGES = Path(__file__).parents[2] / "docs" / "images"
RECORDING = "connected-agent.svg"  # made by `make recording`
MAX_BYTES = 200_000


class Scene(NamedTuple):
    """A picture.

    Attributes:
        name: of its file in docs/images, without ending.
        path: of the page, over the data of `planted_day`.
        shows: a selector of what the picture is for; it is scrolled to.
        width: of the window, in CSS pixels.
        height: likewise.
        theme: `light` or `dark`.
    """

    name: str
    path: str
    shows: str
    width: int = 1280
    height: int = 800
    theme: str = "light"


SCENES = (
    Scene("now", "/", "#attention [data-row]"),
    Scene("now-phone", "/", "#attention [data-row]", width=400, height=800, theme="dark"),
    Scene("session", f"/sessions/{STUCK_SESSION}", "#timeline [data-row]", theme="dark"),
    Scene("tool", f"/tools/{WORSE_TOOL}?since=14d", "#over-time"),
    Scene("models", "/models?since=14d", "figure"),
    Scene("question", "/history/worse?since=7d", "main table"),
)


def shoot(browser: Browser, url: str, scene: Scene, folder: Path) -> Path:
    """Take a picture of what is there; fails where the page does not show what the picture is for."""
    visitor = Visitor(browser, url, width=scene.width, height=scene.height, theme=scene.theme)
    try:
        page = visitor.tab(scene.path)
        expect(page.locator(scene.shows).first).to_be_visible()
        expect(page.locator('.live[data-state="live"]')).to_be_visible()
        assert visitor.faults == []
        target = folder / f"{scene.name}.png"
        page.screenshot(path=str(target))
    finally:
        visitor.close()
    return target
