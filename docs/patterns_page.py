"""Writes the reference of patterns from their detectors, the rules, the situations and the verdicts.

`python docs/patterns_page.py` writes `docs/patterns.md`; `--check` fails if the file differs from them.
"""

import inspect
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from trustfold.projections.session.detectors.detector import PatternDetector
from trustfold.projections.session.detectors.registry import KINDS
from trustfold.rules.behaviour import BehaviourRules, SeverityLadder

PAGE = Path(__file__).resolve().parent / "patterns.md"
TESTS = Path(__file__).resolve().parents[1] / "tests"
SITUATIONS = TESTS / "situations"
VERDICTS = TESTS / "quality" / "verdicts.ndjson"

HEAD = """# Patterns

What each detector looks for, in the order of precedence; [Detection](detection.md) says how repetition is judged.
Made by `make schemas` from the docstrings in `projections/session/detectors/`, the rules, the situations of
`tests/situations/` (`speaks`: this pattern may be the first to be said; `silent`: it must not be said, though it is
tempted) and the verdicts on detections in recorded runs that were read by eye (`tests/quality/verdicts.ndjson`).
"""


def rows(file: Path) -> list[dict[str, Any]]:
    """Objects of a file with one a line."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def described(kind: type[PatternDetector]) -> str:
    """The docstring of a detector, without its attributes and the word that says what it is."""
    text = (inspect.getdoc(kind) or "").partition("\n\nAttributes:")[0]
    first = text.removeprefix("Detector of ")
    return first[0].upper() + first[1:]


def ladders(pattern: str, rules: BehaviourRules) -> str:
    """The ladders of a pattern."""
    found = {
        name: ladder
        for name in rules.__struct_fields__
        if (name == pattern or name.startswith(f"{pattern}_"))
        and isinstance(ladder := getattr(rules, name), SeverityLadder)
    }
    lines = [
        f"| `{name}` | " + " | ".join("–" if step is None else str(step) for step in steps(ladder)) + " |\n"
        for name, ladder in found.items()
    ]
    return "".join(["| ladder | minor | moderate | severe |\n|---|---:|---:|---:|\n", *lines])


def steps(ladder: SeverityLadder) -> tuple[int | None, ...]:
    """The steps of a ladder."""
    return ladder.minor, ladder.moderate, ladder.severe


def measured(verdicts: list[dict[str, Any]]) -> str:
    """Markdown paragraph on the verdicts of a pattern's detections."""
    if not verdicts:
        return "None in the recorded runs.\n"
    counts = Counter(row["verdict"] for row in verdicts)
    sources = len({row["source"] for row in verdicts})
    parts = ", ".join(f"{counts[word]} {word}" for word in ("right", "useless", "false") if counts[word])
    where = "one source" if sources == 1 else f"{sources} sources"
    return f"Of {len(verdicts)} detections in {where}: {parts}.\n"


def cases(title: str, situations: list[dict[str, Any]]) -> str:
    """A list of situations."""
    lines = [f"- {one['id']}: {one['why']} ({one['source']})\n" for one in situations]
    return "".join([f"**{title}**\n\n", *lines])


def section(pattern: str, kind: type[PatternDetector]) -> str:
    """The section of a pattern."""
    silent, speaks = (
        [one for one in rows(SITUATIONS / f"{name}.ndjson") if pattern in one["pattern"]]
        for name in ("silent", "speaking")
    )
    verdicts = [row for row in rows(VERDICTS) if row["pattern"] == pattern]
    parts = [
        f"## `{pattern}`\n",
        f"{described(kind)}\n",
        ladders(pattern, BehaviourRules()),
        "It may stop a run.\n" if len(kind.texts) > 2 else "It ends at guidance.\n",
        f"**Read by eye.** {measured(verdicts)}",
        cases("Speaks", speaks),
        cases("Silent", silent),
    ]
    return "\n" + "\n".join(parts)


def page() -> str:
    """The page as Markdown."""
    return HEAD + "".join(section(pattern, kind) for pattern, kind in KINDS.items())


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with what it is made from."""
    if arguments == ["--check"]:
        fresh = PAGE.exists() and PAGE.read_text() == page()
        if not fresh:
            sys.stderr.write("docs/patterns.md: not made from the present detectors; run `make schemas`\n")
        return 0 if fresh else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
