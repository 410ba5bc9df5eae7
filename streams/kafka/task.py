"""Task of one stage partition, from its assignment to its revocation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from faust.types import TP

from .faults import WorkerFault
from .store import OWN, PartitionStore

if TYPE_CHECKING:
    from ...projections.processor import StageProcessor

PROGRESS_KEY = OWN + b"progress"
"""Key of a checkpoint's source offsets in the changelog.

It is written after the states of the same checkpoint, so its readers have all of them: the next owner begins there,
even if the group's offsets were not committed or have expired. A source log that ends before it was recreated.
"""


# Key of the ids of the topics that the source offsets belong to; a recreated topic has another id
TOPICS_KEY = OWN + b"topics"


@dataclass(slots=True, eq=False)
class PartitionTask:
    """Processor with its store and its positions in the logs."""

    stage: str  # name of the stage
    partition: int  # partition number, the same for every source topic and the changelog
    processor: StageProcessor  # folds the records
    store: PartitionStore  # encoded states acknowledged by the changelog
    epoch: int  # offset of this owner's claim in the changelog (see `changelog`)
    log_next: int  # expected changelog offset of the next state record
    next: dict[TP, int]  # next offset of each source partition to process
    moved: bool = False  # whether records were processed since the last snapshot
    # keys whose states must be written again because a stale record follows them
    rewrite: set[bytes] = field(default_factory=set)
    # the engine's own keys and values that the next checkpoint writes
    notes: dict[bytes, bytes] = field(default_factory=dict)
    # callbacks run once that checkpoint is durable
    when_durable: list[Callable[[], None]] = field(default_factory=list)
    rules: Any = None  # rules of the task; None without a rulebook

    def take_snapshot(self) -> list[tuple[bytes, bytes | None]]:
        """Return what to write: states touched or dropped, states to be written again, source offsets."""
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
        """Compare topic ids, by real name, with those the state was folded from, and note them."""
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

    def note_topic(self, name: str, topic_id: str) -> bool:
        """Note the id of a topic that the stage writes; return whether it is another topic than the noted one."""
        stored = self.store.get(TOPICS_KEY)
        noted: dict[str, str] = orjson.loads(self.notes.get(TOPICS_KEY) or stored or b"{}")
        if noted.get(name) != topic_id:
            self.notes[TOPICS_KEY] = orjson.dumps(noted | {name: topic_id})
        return noted.get(name, topic_id) != topic_id

    def progress(self) -> dict[TP, int]:
        """Return the source offsets of the last checkpoint in the store; empty before the first."""
        stored = self.store.get(PROGRESS_KEY)
        noted: dict[str, int] = orjson.loads(stored) if stored is not None else {}
        return {TP(topic, self.partition): offset for topic, offset in noted.items()}
