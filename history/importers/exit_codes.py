"""Exit codes that agents write behind the output of a command: Gemini CLI, and what descends from it."""

from __future__ import annotations

import re

from .results import GOOD, Ending, failed

EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,10})[ \t]*$", re.MULTILINE)
"""How Gemini CLI and what descends from it state an exit code behind the output of a command."""

_FRAME = re.compile(r"^Output: (.*?)\n(?:Error: [^\n]*\n)?Exit Code: ", re.MULTILINE | re.DOTALL)
"""The output of a command within what those agents write around it."""

PROCESS = re.compile(r"^Process Group PGID: .*\n?", re.MULTILINE)
"""The number of the process, which makes every run of a command look like another result."""


def by_exit_code(text: str, code: int | None) -> Ending:
    """The end of a command by its exit code; None: none is known, and nothing is held against it."""
    if not code:
        return GOOD
    framed = _FRAME.search(text)
    return failed(framed[1].strip() or text if framed else text, f"exit_code_{code}")


def code_in(pattern: re.Pattern[str], text: str) -> int | None:
    """The exit code that an agent writes behind an output: the last that the pattern finds in its last words."""
    found = pattern.findall(text[-2000:])
    return int(found[-1]) if found else None
