"""Scripts of the sessions that are recorded, in the tools of each agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fake_model import Step

FILE = "price.py"
RED = "./check"
"""Prints what fails: the tests, until the file holds 4."""

Edit = Callable[[str, str], Any]


def _edits(agent: str) -> Edit:
    """How an agent edits the file: tool and arguments for a text and what it becomes."""
    path = "@project@/" + FILE
    match agent:
        case "claude":
            return lambda old, new: ("Edit", {"file_path": path, "old_string": old, "new_string": new})
        case "gemini" | "qwen":
            tool = "replace" if agent == "gemini" else "edit"
            return lambda old, new: (
                tool,
                {"file_path": path, "instruction": "set it", "old_string": old, "new_string": new},
            )
        case "opencode":
            return lambda old, new: ("edit", {"filePath": path, "oldString": old, "newString": new})
        case "copilot":
            return lambda old, new: ("edit", {"path": path, "old_str": old, "new_str": new})
    return lambda old, new: (
        f"apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: {FILE}\n@@\n-{old}\n+{new}\n*** End Patch\nEOF"
    )


def _reads(agent: str) -> Any:
    path = "@project@/" + FILE
    match agent:
        case "claude":
            return ("Read", {"file_path": path})
        case "gemini" | "qwen":
            return ("read_file", {"file_path": path})
        case "opencode":
            return ("read", {"filePath": path})
        case "copilot":
            return ("view", {"path": path})
    return f"cat {FILE}"


def sessions_of(agent: str) -> dict[str, tuple[str | Step, ...]]:
    """Scripts by the name of the session."""
    edit, read = _edits(agent), _reads(agent)
    tests = tuple(
        step
        for number in range(1, 8)
        for step in (Step((RED,), ""), Step((edit(f"PRICE = {number - 1}", f"PRICE = {number}"),), ""))
    )
    return {
        "loop": ("./look",) * 8,
        "failures": ("./release one",) * 8,
        "edited": (Step((read,), ""), *tests, Step((RED,), "")),
        "rejected": tuple(Step((edit(f"NONE = {number}", "X = 1"),), f"Now I edit {number}.") for number in range(6)),
        "parallel": (Step(("./look",) * 4), "./check", Step(("./look",) * 4)),
        "dangerous": ("rm -rf ./old", "./look", "rm -rf ./old", "ls"),
    }
