"""Styles and scripts: colours that can be read, and libraries that are what their makers published."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest
from trustfold.web.dashboard.render import static_files

PINNED = {
    "htmx-4.0.1.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "hx-sse-4.0.1.min.js": "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103",
}
CSS = static_files()["dashboard.css"][0].decode()
LIGHT, DARK = (dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in CSS.split("@media", 2)[:2])


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2)."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast of two colours (WCAG 2)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_can_be_read(colours: dict[str, str]) -> None:
    """Every colour of text on both grounds: at least 4.5 to 1."""
    texts = [name for name in colours if name in {"text", "quiet", "link"} or name.startswith("state-")]
    assert len(texts) == 12
    low = {
        (text, ground): round(contrast(colours[text], colours[ground]), 2)
        for text in texts
        for ground in ("ground", "raised")
        if contrast(colours[text], colours[ground]) < 4.5
    }
    assert low == {}


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_severities_rise_evenly(colours: dict[str, str]) -> None:
    """Each darker than the one before in the light theme, each brighter in the dark one."""
    steps = [luminance(colours[f"sev-{step}"]) for step in range(1, 6)]
    assert steps == sorted(steps, reverse=colours is LIGHT)


@pytest.mark.parametrize("name", sorted(PINNED))
def test_libraries_are_as_published(name: str) -> None:
    """Byte for byte those of the npm package; their licence lies beside them."""
    assert sha256(static_files()[name][0]).hexdigest() == PINNED[name]
    assert b"Zero-Clause BSD" in static_files()["htmx-LICENSE.txt"][0]


def test_scripts_compile_nothing() -> None:
    """Our own script neither evaluates text nor writes markup."""
    script = static_files()["dashboard.js"][0].decode()
    assert not re.search(r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write", script)
