"""A fortnight of two teams' agents that ends now, with something on every page: for the browser and for pictures.

Two days of work, and deploys that fail more often than those of a week ago; then the chapters of `trustfold demo`, an
agent that runs the same command again and again, and names that are markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from heapq import merge
from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from random import Random

import orjson
from command_line import Up, trustfold, up
from story import START, Story
from two_days import MODELS, two_days

MARKUP = '<img src=x onerror="window.planted=1">'
HOSTILE_SESSION = "<script>window.planted=2</script>"
HOSTILE_TOOL = f"run_{MARKUP}"
STUCK_SESSION = "fix-login"
WORSE_TOOL = "deploy"

Record = tuple[str, bytes]


def planted_day(now: datetime, *, markup: bool = True) -> list[Record]:
    """Topic and value of every record, in the order of their times; the same at every call, but for the times.

    Args:
        now: when the fortnight ends.
        markup: whether names that are markup are among the records.
    """
    parts = [
        _moved(_deploys(0.05, 1 << 40), ends=now - timedelta(days=7)),
        _moved(two_days(), ends=now - timedelta(minutes=15)),
        _moved(_deploys(0.45, 2 << 40), ends=now - timedelta(minutes=20)),
        _moved(_demo(), ends=now - timedelta(seconds=100)),
        _moved(_stuck(), ends=now - timedelta(seconds=30)),
    ]
    if markup:
        parts.append(_moved(_hostile(), ends=now - timedelta(seconds=10)))
    timed = [[(orjson.loads(value)["time"], number, topic, value) for topic, value in part]
             for number, part in enumerate(parts)]  # fmt: skip
    return [(topic, value) for _, _, topic, value in merge(*timed, key=itemgetter(0, 1))]


@contextmanager
def serving_a_planted_day(folder: Path, now: datetime, *, markup: bool = True) -> Iterator[Up]:
    """A `trustfold up` that has folded it, over a history of the same."""
    with up(cwd=folder) as running:
        events = b"\n".join(value for _, value in planted_day(now, markup=markup))
        assert running.post("/v1/events", events)["dead_letters"] == 0
        recorded = trustfold("record", "--once", cwd=folder)
        assert recorded.returncode == 0, recorded.stderr
        yield running


def _moved(records: Iterable[Record], *, ends: datetime) -> list[Record]:
    """Records whose last one happens at a time, the others as far in front of it as they are."""
    read = [(topic, orjson.loads(value)) for topic, value in records]
    further = ends - max(datetime.fromisoformat(one["time"]) for _, one in read)
    for _, one in read:
        at = datetime.fromisoformat(one["time"]) + further
        one["time"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return [(topic, orjson.dumps(one)) for topic, one in read]


def _deploys(failing: float, first_id: int) -> list[Record]:
    chance, told = Random(3), []
    for number in range(20):
        story = _story(f"release-{first_id >> 40}-{number:02d}", first_id + (number << 20), model=MODELS[number % 3])
        story.now = START + timedelta(hours=2 * number)
        for step in range(3):
            if chance.random() < failing:
                story.fails(
                    WORSE_TOOL, {"service": "checkout", "step": step}, with_="timeout", message="no answer in 60 s"
                )
            else:
                story.works(WORSE_TOOL, {"service": "checkout", "step": step}, result=f"release {number} {step}")
        told += story.records
    return told


def _demo() -> list[Record]:
    day = files("trustfold.cli").joinpath("demo.ndjson").read_bytes()
    return [("events", line) for line in day.splitlines()]


def _stuck() -> list[Record]:
    story = _story(STUCK_SESSION, 3 << 40, model="medium-2")
    story.user_says()
    story.says("I will run the tests of the login form first.")
    story.works("read_file", {"path": "src/login.py"}, result="def login(user): ...")
    story.fails("bash", {"command": "pytest tests/test_login.py"}, with_="", message="3 failed, 41 passed", times=9)
    return story.records


def _hostile() -> list[Record]:
    story = _story(HOSTILE_SESSION, 4 << 40, model=f"model-{MARKUP}")
    story.user_says()
    story.says(f"Now look at {MARKUP} and \u202egnp.exe")
    story.fails(HOSTILE_TOOL, {"text": MARKUP}, message=f"failed: {MARKUP}", times=4)
    return story.records


def _story(session: str, first_id: int, model: str) -> Story:
    story = Story(session=session, workspace="team-1", user="ada", model=model)
    story._ids = first_id
    return story
