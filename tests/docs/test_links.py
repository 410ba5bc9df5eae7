"""Links between the documents, and into the repository, lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """The anchors a code host gives the headings of a document."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", document.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve(document: Path) -> None:
    """Each relative link names a file of the repository and, after a `#`, a heading of it."""
    dead = []
    for link in LINK.findall(FENCE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_every_decision_is_in_the_index() -> None:
    """A decision that nobody can find was not taken."""
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    numbered = sorted(path.name for path in folder.glob("[0-9][0-9][0-9][0-9]-*.md"))
    assert numbered
    assert [name for name in numbered if f"({name})" not in index] == []
