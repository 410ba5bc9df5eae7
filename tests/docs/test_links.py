"""Links and references in documents and code lead to pages, sections and files of this repository."""

import ast
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from trustfold.errors import DOCS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PAGE = re.compile(r"(?:\bdocs|\{DOCS\}|%s)/([\w./-]+\.md)(?:#([\w-]+))?")
OUTSIDE = re.compile(r"\b[Dd]esign [1-6]\b|\b[Tt]he seeds?\b|\b[Ss]eeds? [1-5]\b|\.\./shared\b")
"""Names of documents that are not in this repository."""

GUIDES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "architecture.md",
    *sorted(path for path in (ROOT / "docs" / "subsystems").glob("*.md") if path.stem != "index"),
    ROOT / "docs" / "design" / "semantics.md",
]
PATH = re.compile(r"`((?:[a-z_]+/)+[\w.]*)`")

MAY_NAME_OTHERS = {
    "docs/seeds.md": "says where each requirement is met, by the number of its document",
    "tests/docs/test_seeds.py": "tests that page",
    "tests/docs/test_links.py": "names what it looks for",
}
FENCE = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(document: Path) -> set[str]:
    """The anchors a code host gives the headings of a document."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", document.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_relative_links_resolve() -> None:
    """Each relative link names a file of the repository and, after a `#`, a heading of it."""
    dead = []
    for document in DOCUMENTS:
        for link in LINK.findall(FENCE.sub("", document.read_text())):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (document.parent / path).resolve() if path else document
            if not target.exists() or (anchor and anchor not in anchors(target)):
                dead.append(f"{document.relative_to(ROOT)}: {link}")
    assert dead == []


def test_every_decision_is_in_the_index() -> None:
    """A decision that nobody can find was not taken."""
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    numbered = sorted(path.name for path in folder.glob("[0-9][0-9][0-9][0-9]-*.md"))
    assert numbered
    assert [name for name in numbered if f"({name})" not in index] == []


def tracked_texts() -> dict[str, str]:
    """Text files of the repository, by their paths; recorded and invented sessions name files of their own."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [
        name
        for name in listed.stdout.split("\0")
        if name and Path(name).suffix not in {".png", ".gz", ".ico", ".ndjson"}
    ]
    return {name: (ROOT / name).read_text("utf-8", "replace") for name in paths if (ROOT / name).is_file()}


def test_pages_and_sections_that_files_name_exist() -> None:
    """`docs/….md#section`, in docstrings and comments, and after the address of the pages in texts."""
    known: dict[str, set[str]] = {}
    dead = []
    for name, text in tracked_texts().items():
        for page, section in PAGE.findall(text):
            if page not in known:
                known[page] = anchors(ROOT / "docs" / page) if (ROOT / "docs" / page).exists() else set()
            if not known[page] or (section and section not in known[page]):
                dead.append(f"{name}: {page}#{section}")
    assert dead == []


def test_messages_name_pages_by_their_address() -> None:
    """Who installed a wheel has no folder `docs`: the address is that of the index, in one constant."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert f"{DOCS}/index.md" == urls["Documentation"]
    modules = [name for name in tracked_texts() if re.fullmatch(r"(?!tests/|docs/|ops/).*\.py", name)]
    found = []
    for name in modules:
        tree = list(ast.walk(ast.parse((ROOT / name).read_text())))
        prose = {id(node.value) for node in tree if isinstance(node, ast.Expr)}
        found += [
            f"{name}:{node.lineno}"
            for node in tree
            if isinstance(node, ast.Constant)
            and id(node) not in prose
            and re.search(r"\bdocs/[\w/-]+\.md", str(node.value))
        ]
    assert found == []


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_guide_names_exist(guide: Path) -> None:
    """Paths in backticks, from the root; those with a NAME in capitals are patterns."""
    named = [path for path in PATH.findall(guide.read_text()) if not re.search(r"[A-Z]{4}", path)]
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_nothing_refers_to_documents_outside() -> None:
    """What is needed to understand the code stands in `docs/`."""
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in tracked_texts().items()
        if name not in MAY_NAME_OTHERS
        for number, line in enumerate(text.splitlines(), start=1)
        if OUTSIDE.search(line)
    ]
    assert found == []
