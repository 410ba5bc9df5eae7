"""Events made up where no recorded ones are at hand: the same at every call, in the mix of the recordings.

The shares come from the recorded coding sessions: 38 % starts and as many finishes, 17 % texts, 7 % messages and
turns; one call in twenty fails; results of 500 bytes in the middle and 2 kB at the end, arguments of 130 bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

SESSIONS = 300
SEED = 20_260_105
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)

TOOLS = {"Bash": 30, "Read": 25, "Edit": 21, "Grep": 13, "TodoWrite": 5, "mcp__issues__search": 4, "Write": 2}
COMMANDS = (
    "git status --short",
    "go test ./{w}/... -run Test{W}",
    "ls -la {w}",
    "cd {w} && make {x}",
    "cat {w}/{x}.go",
)
WORDS = (
    "agent batch cache codec driver event fetch graph handler index job kernel ledger merge node parser query".split()
)
ERRORS = (
    {"type": "tool_error", "message": "Exit code 1: no such file or directory"},
    {"type": "tool_error", "message": "String to replace not found in file"},
    {"type": "timeout", "message": "the command did not end in time"},
    {"type": "HTTPError", "message": "Service Unavailable", "http_status": 503},
)
TEXTS = ("Now let me look at the {w}.", "The {w} looks right; the {x} does not.", "I'll fix the {x} in {w} next.")


def generate(sessions: int = SESSIONS) -> Iterator[bytes]:
    """The values of all events of so many sessions, session by session."""
    chance = random.Random(SEED)
    for number in range(sessions):
        yield from _Session(number, chance).events()


class _Session:
    def __init__(self, number: int, chance: random.Random) -> None:
        self._chance = chance
        self._at = START + timedelta(minutes=number)
        self._made = 0
        self._turn = 0
        self._id = f"session-{number:05d}"
        self._workspace = f"workspace-{number % 7}"

    def events(self) -> Iterator[bytes]:
        for turn in range(1 + int(self._chance.expovariate(1 / 6))):
            self._turn = turn
            yield self._event("user.message", seconds=60)
            yield self._event("turn.started")
            for _ in range(1 + int(self._chance.expovariate(1 / 11))):
                if self._chance.random() < 0.45:
                    text = self._fill(self._chance.choice(TEXTS), int(self._chance.lognormvariate(4, 1.3)))
                    yield self._event("model.text", seconds=4, text=text)
                yield from self._call()

    def _call(self) -> Iterator[bytes]:
        chance = self._chance
        tool = chance.choices(list(TOOLS), list(TOOLS.values()))[0]
        call_id = f"toolu_{chance.getrandbits(80):020x}"
        yield self._event("tool_call.started", seconds=3, call_id=call_id, tool_name=tool, args=self._arguments(tool))
        if chance.random() < 0.003:
            return  # interrupted
        duration = int(chance.lognormvariate(6, 2))
        finish: dict[str, Any] = {"call_id": call_id, "tool_name": tool, "duration_ms": duration}
        if chance.random() < 0.05:
            finish |= {"status": "error", "error": chance.choice(ERRORS), "result": self._fill("", 80)}
        else:
            finish |= {"status": "success", "result": self._fill("", int(chance.lognormvariate(5.5, 1.4)))}
        yield self._event("tool_call.finished", seconds=duration / 1000, **finish)

    def _arguments(self, tool: str) -> dict[str, Any]:
        file = self._fill("/home/dev/{w}/{x}/{w}_{x}.go", 0)
        if tool == "Bash":
            return {
                "command": self._fill(self._chance.choice(COMMANDS), 0),
                "description": self._fill("Look at {w}", 3),
            }
        if tool in {"Edit", "Write"}:
            size = int(self._chance.lognormvariate(5, 1.2))
            return {"file_path": file, "old_string": self._fill("", size), "new_string": self._fill("", size)}
        return {"file_path": file} if tool == "Read" else {"pattern": self._fill("{w}.*{x}", 0), "path": file}

    def _fill(self, text: str, letters: int) -> str:
        first, second = self._chance.choice(WORDS), self._chance.choice(WORDS)
        filled = text.replace("{w}", first).replace("{W}", first.title()).replace("{x}", second)
        count = min(letters, 2200) // 6
        return " ".join([filled, *self._chance.choices(WORDS, k=count)]) if count else filled

    def _event(self, kind: str, *, seconds: float = 0.0, **fields: Any) -> bytes:
        self._made += 1
        self._at += timedelta(seconds=min(seconds, 300) * self._chance.random())
        envelope = {
            "schema_version": "1.0",
            "id": f"{self._id}-{self._made:06d}",
            "type": kind,
            "time": self._at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "session_id": self._id,
            "workspace_id": self._workspace,
            "turn_index": self._turn,
            "model": "model-a",
        }
        return orjson.dumps(envelope | fields)
