"""Failures as many agents, servers and runtimes report them: which word is right for each.

The rows stand in reported_failures.jsonl: the word, the tool and its arguments, and the finish as it is published.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from story import Story

ROWS = [orjson.loads(line) for line in Path(__file__).with_name("reported_failures.jsonl").read_bytes().splitlines()]


def words_of(tool: str, args: dict[str, Any], **finish: Any) -> set[str]:
    """Severities of a call in the scopes that judge it, or what it is in place of a failure."""
    story = Story()
    story.finished(story.started(tool, args), tool, **({"result": None} | finish))
    outcomes = [orjson.loads(output.value or b"{}") for output in story.outputs if output.topic == "outcomes"]
    return {one.get("severity") or one["verdict"] for one in outcomes if one.get("kind") != "program"}


def test_what_other_agents_report() -> None:
    """Answers, refusals of a person and faults, each by its word."""
    for row in ROWS:
        call = {name: value for name, value in row.items() if name != "word"}
        assert words_of(**call) == {row["word"]}, row
