"""The store of the embedded engine as a target: read beside a running engine, written when none runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import orjson

from ..schemas.codec import encode
from ..schemas.commands import Command
from ..streams.embedded.engine import EmbeddedEngine, Request, source_in_force
from ..streams.embedded.errors import StoreLocked
from ..streams.embedded.views import DEAD_LETTERS, MAX_PAGE, Views
from .http_target import HttpTarget
from .targets import Letter, Overview, Record

TOOL_TOPICS = ("escalations", "breakers")
"""Decisions about tools."""


class StoreTarget:
    """One store; where an engine runs over it, orders go to that engine's address."""

    def __init__(self, path: Path, token: str = "") -> None:
        """Use the store at `path`; `token` is for an engine that runs over it."""
        self._path = path
        self._token = token

    @property
    def name(self) -> str:
        """For messages."""
        return str(self._path)

    def overview(self) -> Overview:
        """Public state of every key away from its default."""
        with closing(Views.open(self._path)) as views:
            mode = source_in_force(views).rules.trust.recovery_mode
            return Overview([orjson.loads(value) for value in views.states().values()], str(mode))

    def history(self, limit: int) -> list[Record]:
        """Latest decisions about tools, oldest first."""
        found: list[Record] = []
        with closing(Views.open(self._path)) as views:
            after = 0
            while page := views.decisions(TOOL_TOPICS, after=after, limit=MAX_PAGE):
                after = page[-1].offset
                found = [*found, *(orjson.loads(one.output.value or b"{}") for one in page)][-limit:]
        return found

    def order(self, commands: Sequence[Command]) -> list[Record]:
        """Fold commands into the store, or hand them to the engine that runs over it."""
        try:
            with EmbeddedEngine.open(self._path) as engine:
                request = Request("commands", [encode(command) for command in commands])
                (receipt,) = engine.submit([request], arrived_ms=_now())
        except StoreLocked as taken:
            return self._engine_of(taken).order(commands)
        return [orjson.loads(out.value) for out in receipt.outputs if out.topic in TOOL_TOPICS and out.value]

    def dead_letters(self, *, everything: bool) -> list[Letter]:
        """Dead letters, oldest first."""
        letters: list[Letter] = []
        with closing(Views.open(self._path)) as views:
            after = 0
            while page := views.dead_letters(after=after, limit=MAX_PAGE, republished=everything):
                after = page[-1].offset
                letters += [Letter(str(one.offset), orjson.loads(one.output.value or b"{}")) for one in page]
        return letters

    def republish(self, letters: Sequence[Letter]) -> int:
        """Fold the records behind dead letters again."""
        try:
            with EmbeddedEngine.open(self._path) as engine:
                outputs = engine.republish([int(letter.ref) for letter in letters], arrived_ms=_now())
        except StoreLocked as taken:
            return self._engine_of(taken).republish(letters)
        return sum(output.topic == DEAD_LETTERS for output in outputs)

    def _engine_of(self, taken: StoreLocked) -> HttpTarget:
        if not taken.address:
            raise taken
        return HttpTarget(taken.address, self._token)


def _now() -> int:
    return time.time_ns() // 1_000_000
