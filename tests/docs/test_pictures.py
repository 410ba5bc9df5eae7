"""The pictures of the documents: each is shown somewhere, small, and described by a scene that can be taken again."""

from __future__ import annotations

import re
from pathlib import Path

from scenes import IMAGES, MAX_BYTES, RECORDING, SCENES

ROOT = Path(__file__).parents[2]


def test_every_scene_has_its_picture_and_its_place() -> None:
    """A file for each scene and the recording, none besides, each with words for those who do not see it."""
    names = {f"{scene.name}.png" for scene in SCENES} | {RECORDING}
    assert {file.name for file in IMAGES.iterdir()} == names
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md"]
    shown = [
        found for page in pages for found in re.findall(r"!\[([^\]]*)\]\((?:docs/)?images/([^)]+)\)", page.read_text())
    ]
    assert {name for _, name in shown} == names
    assert all(len(words) > 15 for words, _ in shown)


def test_pictures_are_small() -> None:
    """At most 200 kB each; what was taken of a page is PNG."""
    for file in IMAGES.iterdir():
        assert file.stat().st_size <= MAX_BYTES, file.name
        assert file.name == RECORDING or file.read_bytes().startswith(b"\x89PNG\r\n")
