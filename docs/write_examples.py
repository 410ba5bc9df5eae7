"""Writes the Python examples of README and docs into a folder, one file each: `make typecheck` reads them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELAXED = {
    "frameworks": "misc, no-untyped-call, no-untyped-def, type-arg, dict-item, untyped-decorator",
}
"""Errors that mypy leaves out by page: frameworks are not installed here, so that their classes have no types."""

EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def main(folder: Path) -> None:
    """Write every example, at the line that it has in its page, so that faults name that line."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text()
        for number, found in enumerate(EXAMPLE.finditer(text), start=1):
            above = text.count("\n", 0, found.start(1))
            (folder / f"{page.stem}_{number}.py".lower()).write_text(
                f'# mypy: disable-error-code="{RELAXED.get(page.stem, "")}"' + "\n" * above + found[1]
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
