"""Hooks for tests: recorded payloads of every agent, and an agent that works through a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trustfold.ingest.hooks import DIALECTS, HookAnswer, HookEvent
from trustfold.integrations.hook_session import Check, HookSession, HookVerdict

PAYLOADS = Path(__file__).parents[1] / "integrations" / "payloads"
START_MS = 1_795_312_387_000
STEP_MS = 100


def recorded(agent: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name (where the payload has none) and payload of each recorded hook of an agent, in order."""
    for line in (PAYLOADS / f"{agent}.jsonl").read_text().splitlines():
        one = json.loads(line)
        yield one["event"], one["payload"]


def no_tail(_path: str) -> bytes:
    """No log of the agent's can be read."""
    return b""


def free(_call: object) -> HookVerdict:
    """Every call may be made."""
    return HookVerdict()


class Conversation:
    """Hooks of one agent, one after the other.

    Attributes:
        events: what followed from them so far.
    """

    def __init__(self, agent: str, tail: Callable[[str], bytes] = no_tail) -> None:
        self.dialect = DIALECTS[agent]
        self.events: list[dict[str, Any]] = []
        self.sessions: dict[tuple[str, str], HookSession] = {}
        self.now_ms = START_MS
        self._tail = tail

    def hook(
        self,
        payload: dict[str, Any],
        event: str = "",
        check: Check = free,
        *,
        shadow: bool = False,
        attended: bool = True,
    ) -> dict[str, Any]:
        """Send a hook; returns the answer in the agent's own words."""
        self.now_ms += STEP_MS
        hook = self.dialect.read(payload, event, self._tail)
        if hook is None:
            return {}
        hook = hook._replace(attended=attended)
        session = self.session(hook)
        self.events += [json.loads(one) for one in session.handle(hook, self.now_ms)]
        answer = session.answer(hook, check, shadow=shadow)
        self.events += [json.loads(one) for one in session.taken()]
        return {} if answer == HookAnswer() else self.dialect.write(hook.event, answer)

    def session(self, hook: HookEvent) -> HookSession:
        """The session of a hook."""
        place = (hook.session, hook.subagent)
        if place not in self.sessions:
            self.sessions[place] = HookSession(self.dialect, hook, workspace="shop", user="ada")
        return self.sessions[place]

    def told(self, *names: str) -> list[tuple[Any, ...]]:
        """Type of each event, with some of its fields."""
        return [(event["type"], *(event.get(name) for name in names)) for event in self.events]
