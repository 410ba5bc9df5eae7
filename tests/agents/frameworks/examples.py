"""The examples of docs/frameworks.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "frameworks.md"


def check_examples(heading: str) -> None:
    """Run the programs under a heading; each must print what stands below it."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    pairs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", section, re.DOTALL)
    assert pairs
    assert len(pairs) == section.count("```python")
    for program, expected in pairs:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
        assert done.stdout == expected, done.stderr
