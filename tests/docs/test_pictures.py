"""The pictures of the documents: each is shown somewhere, small, and described by a scene that can be taken again."""

from __future__ import annotations

import re
from pathlib import Path

from scenes import IMAGES, MAX_BYTES, SCENES

ROOT = Path(__file__).parents[2]


def test_every_scene_has_its_picture_and_its_place() -> None:
    """A file for each scene, none besides, each with words for those who do not see it."""
    names = {f"{scene.name}.png" for scene in SCENES}
    assert {file.name for file in IMAGES.glob("*.png")} == names
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md"]
    shown = [
        found for page in pages for found in re.findall(r"!\[([^\]]*)\]\((?:docs/)?images/([^)]+)\)", page.read_text())
    ]
    assert {name for _, name in shown if name.endswith(".png")} == names
    assert all(len(words) > 15 for words, _ in shown)


def test_pictures_are_small() -> None:
    """At most 200 kB each, and what their names say."""
    for file in IMAGES.iterdir():
        assert file.stat().st_size <= MAX_BYTES, file.name
    for file in IMAGES.glob("*.png"):
        assert file.read_bytes().startswith(b"\x89PNG\r\n")
