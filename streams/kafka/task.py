"""One stage over one partition, as this worker holds it between an assignment and the next revocation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from faust.types import TP

from .faults import WorkerFault
from .protocols import Processor
from .store import OWN, PartitionStore

PROGRESS_KEY = OWN + b"progress"
"""Key under which a checkpoint notes in the changelog how far it has come in each source topic.

It stands behind the states of the same checkpoint, so whoever reads it has them all: the next owner begins there, even
where the group's offsets were not committed any more, or have expired. A source log that ends before it is another log.
"""


TOPICS_KEY = OWN + b"topics"
"""Key under which a checkpoint notes the ids of the topics that the progress is of; a topic made anew has another."""


@dataclass(slots=True, eq=False)
class PartitionTask:
    """A processor with its store and its place in the logs.

    Attributes:
        stage: name of the stage.
        partition: partition number, the same for every source topic and the changelog.
        processor: folds the records.
        store: encoded states, as far as the changelog has acknowledged them.
        epoch: offset of this owner's claim in the changelog (see `fencing`).
        log_next: changelog offset the next state record should get.
        next: offset of each source partition up to which records have been processed.
        moved: whether records were processed since the last snapshot.
        rewrite: keys whose states must be written again because a stale record stands above them.
        notes: keys and values of the engine's own that the next checkpoint writes.
        when_durable: called once that checkpoint is durable.
        rules: what the rulebook knows of the task; None where there is none.
    """

    stage: str
    partition: int
    processor: Processor
    store: PartitionStore
    epoch: int
    log_next: int
    next: dict[TP, int]
    moved: bool = False
    rewrite: set[bytes] = field(default_factory=set)
    notes: dict[bytes, bytes] = field(default_factory=dict)
    when_durable: list[Callable[[], None]] = field(default_factory=list)
    rules: Any = None

    def take_snapshot(self) -> list[tuple[bytes, bytes | None]]:
        """What to write now: states touched or dropped, states to be written again, how far the sources are read."""
        items = self.processor.snapshot(int(time.time() * 1000))
        if self.rewrite:
            touched = {key for key, _ in items}
            items.extend((key, self.store.get(key)) for key in sorted(self.rewrite - touched))
            self.rewrite.clear()
        if self.moved:
            items.append((PROGRESS_KEY, orjson.dumps({tp.topic: offset for tp, offset in self.next.items()})))
            self.moved = False
        items.extend(self.notes.items())
        self.notes.clear()
        return items

    def check_topics(self, ids: Mapping[str, str]) -> None:
        """Compare the topics, by real name and id, with those that the state was folded from, and have them noted.

        Raises:
            WorkerFault: a topic was deleted and created again.
        """
        stored = self.store.get(TOPICS_KEY)
        noted: dict[str, str] = orjson.loads(stored) if stored is not None else {}
        for name, made in ids.items():
            if noted.get(name, made) != made:
                raise WorkerFault(
                    f"topic {name} was deleted and created again while no worker ran: positions kept in the state "
                    "would hide its new records. Delete the consumer group and the changelog topics too, or use "
                    "another TRUSTFOLD_APP_ID"
                )
        if not ids.items() <= noted.items():
            self.notes[TOPICS_KEY] = orjson.dumps(noted | dict(ids))

    def progress(self) -> dict[TP, int]:
        """How far the last checkpoint in the store has come in each source partition; empty before the first."""
        stored = self.store.get(PROGRESS_KEY)
        noted: dict[str, int] = orjson.loads(stored) if stored is not None else {}
        return {TP(topic, self.partition): offset for topic, offset in noted.items()}
