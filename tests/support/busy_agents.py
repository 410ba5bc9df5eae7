"""A large, deterministic stream of events of many agents, for tests of engines under load and under fire.

Each session works in a workspace of its own, so what is decided for any key depends on one session's order alone and
not on how partitions interleave.
"""

from __future__ import annotations

from heapq import merge
from operator import itemgetter
from random import Random

import orjson
from story import Story


def busy_agents(sessions: int, calls: int, seed: int = 1) -> list[tuple[str, bytes]]:
    """About 2.4 events per call: work, failures, loops, talk; some calls never finish. Sessions are interleaved."""
    random = Random(seed)
    return _interleaved([_session(number, calls, random) for number in range(sessions)])


def busy_users(sessions: int, turns: int, seed: int = 1) -> list[tuple[str, bytes]]:
    """About 11 events per turn of people who share workspaces, tools and models, so that all of it adds up elsewhere.

    Tools fail for hours and work again. What is decided depends on the order of all sessions: for one partition only.
    """
    random = Random(seed)
    return _interleaved([_shared(number, turns, random) for number in range(sessions)])


def _interleaved(told: list[list[tuple[str, bytes]]]) -> list[tuple[str, bytes]]:
    """All records in order of time, as they arrive live: what falls due is found by the clock of the whole stream."""
    timed = [
        [(orjson.loads(value)["time"], number, topic, value) for topic, value in one] for number, one in enumerate(told)
    ]
    return [(topic, value) for _, _, topic, value in merge(*timed, key=itemgetter(0, 1))]


def _session(number: int, calls: int, random: Random) -> list[tuple[str, bytes]]:
    story = Story(
        session=f"session-{number}", workspace=f"workspace-{number}", user=f"user-{number}", model=f"model-{number}"
    )
    story._ids = number << 32
    for step in range(calls):
        kind = random.random()
        if kind < 0.45:
            story.works("read_file", {"path": f"/src/{random.randrange(9)}.py"}, result=f"text {random.randrange(3)}")
        elif kind < 0.6:
            story.works("edit_file", {"path": "/src/a.py", "text": step}, result="ok")
        elif kind < 0.75:
            story.fails(
                "http_request", {"url": "https://api.example.com/v1"}, http_status=random.choice([503, 404, 401])
            )
        elif kind < 0.85:
            story.fails("bash", {"command": "pytest -q"}, with_="", message=f"{random.randrange(2)} failed")
        elif kind < 0.9:
            story.says("I'll fix that now.")
        elif kind < 0.95:
            story.works("mcp_tracker_search", {"q": 1}, result="none")
        elif kind < 0.98:
            story.user_says()
        else:
            story.started("bash", {"command": f"sleep {step}"}, deadline_ms=30_000)
            story.after(minutes=1)
    story.user_says()
    return story.records


def _shared(number: int, turns: int, random: Random) -> list[tuple[str, bytes]]:
    story = Story(session=f"session-{number}", user=f"user-{number % 3}", model=f"model-{number % 4}")
    story._ids = number << 32
    for _ in range(turns):
        story.moved(workspace=f"workspace-{random.randrange(4)}")
        story.event("turn.started")
        tool = random.choice(["deploy", "search"])
        for step in range(4):
            if random.random() < (0.9 if story.now.hour % 2 else 0.1):
                story.fails(tool, {"q": step % 2}, with_=random.choice(["timeout", "server_error"]))
            else:
                story.works(tool, {"q": step}, result=random.randrange(2))
        story.event("turn.ended")
        if random.random() < 0.3:
            story.user_says()
        story.after(minutes=random.choice([1, 5, 20]))
    return story.records
