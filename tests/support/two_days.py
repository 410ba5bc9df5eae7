"""Two days of three models at work: tools that mostly work, an outage in the second morning, a few loops."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import orjson
from story import Story

MODELS = ("large-1", "medium-2", "small-3")
SESSIONS = 48
CALLS = 22


def two_days(seed: int = 5) -> Iterator[tuple[str, bytes]]:
    """Topic and value of every record, in order; the same at every call."""
    story = Story()
    chance = Random(seed)
    for number in range(SESSIONS):
        story.session, story.workspace = f"session-{number:02d}", f"team-{number % 2}"
        told = len(story.records)
        _session(story, chance, number)
        for topic, value in story.records[told:]:
            yield topic, orjson.dumps(orjson.loads(value) | {"model": MODELS[number % 3]})
        story.after(minutes=48)


def _session(story: Story, chance: Random, number: int) -> None:
    story.user_says()
    for step in range(CALLS):
        kind = chance.random()
        outage = 24 <= number < 27
        if kind < 0.3:
            story.works("read_file", {"path": f"/src/{step}.py"}, result=f"{number} {step}")
        elif kind < 0.5:
            story.works("edit_file", {"path": f"/src/{step % 4}.py", "text": f"{number} {step}"}, result=f"done {step}")
        elif kind < 0.72:
            _search(story, chance, f"{number} {step}", outage=outage)
        elif kind < 0.92:
            _shell(story, chance, number, step)
        else:
            story.after(seconds=20)
            story.says("The tests are next.")
    if number % 9 == 4:
        story.works("bash", {"command": f"git log -{number}"}, result="nothing new", times=4 + number % 5)
    if number % 12 == 7:
        missing = f"make: no rule for 'job-{number}'"
        story.fails("bash", {"command": "make"}, message=missing, times=4)
    story.user_says()


def _search(story: Story, chance: Random, query: str, *, outage: bool) -> None:
    arguments = {"url": f"https://search.example.com/v1?q={query}"}
    if outage or chance.random() < 0.04:
        story.fails(
            "http_request",
            arguments,
            http_status=503,
            message=f"upstream {query} unavailable, request 0x{step_of(query)}",
        )
    else:
        story.works("http_request", arguments, result=f"hits for {query}")


def _shell(story: Story, chance: Random, number: int, step: int) -> None:
    arguments = {"command": f"pytest tests/{step}.py"}
    if chance.random() < 0.12 + 0.1 * (number % 3):
        message = f"FAILED /home/dev-{number}/tests/{step}.py: {chance.randrange(1, 9)} of 40 tests failed"
        story.fails("bash", arguments, with_="", message=message)
    elif chance.random() < 0.05:
        story.fails("bash", arguments, with_="invalid_input", message=f"unknown option '--x{step}'")
    else:
        story.works("bash", arguments, result=f"{number} passed {step}")


def step_of(query: str) -> str:
    """A number that differs from request to request."""
    return f"{sum(map(ord, query)) * 7919:x}"
