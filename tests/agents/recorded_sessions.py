"""Scripts of the sessions that are recorded, in the tools of each agent."""

from __future__ import annotations

from agent_scenarios import Steps, edit, read
from fake_model import Step

RED = "./check"
"""Prints what fails: the tests, until the file holds 4."""


def sessions_of(agent: str) -> dict[str, Steps]:
    """Scripts by the name of the session."""
    tests = tuple(
        step
        for number in range(1, 8)
        for step in (Step((RED,), ""), Step((edit(agent, f"PRICE = {number - 1}", f"PRICE = {number}"),), ""))
    )
    return {
        "loop": ("./look",) * 8,
        "failures": ("./release one",) * 8,
        "edited": (Step((read(agent),), ""), *tests, Step((RED,), "")),
        "rejected": tuple(Step((edit(agent, f"NONE = {n}", "X = 1"),), f"Now I edit {n}.") for n in range(6)),
        "parallel": (Step(("./look",) * 4), "./check", Step(("./look",) * 4)),
        "dangerous": ("rm -rf ./old", "./look", "rm -rf ./old", "ls"),
    }
