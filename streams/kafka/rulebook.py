"""Rules of each stage partition, and the offsets from which they apply (decision 0049).

Every stage partition has a note in its changelog: rules, environment overrides, how far `settings` was read, and the
offsets from which they apply. Changed rules take effect at a checkpoint: nothing is folded between its snapshot and the
moment at which it is durable with the new note. So a repeated fold of a range uses the same rules, and changes them at
the same position.

A worker that was killed has folded records, and sent their outputs, after its last checkpoint. Its successor uses the
note up to the log's current end, and its own rules from there. A worker that stops in order, or gives up a partition,
notes that it has ended; its successor uses its own rules at once. The kill switch takes effect at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
from faust.types import TP

from ...projections.emitter import SCHEMA_VERSION, StageOutput
from ...projections.rule_source import (
    RULES_TOPIC,
    RULES_TYPE,
    RulesInForce,
    RuleSource,
    RulesPlaced,
    fingerprint,
)
from ...schemas.codec import rfc3339
from ...schemas.envelope import output_id
from ...schemas.settings import SettingsOverrides
from .metrics import LaneMetrics
from .store import OWN
from .task import PartitionTask

log = logging.getLogger(__name__)

RULES_KEY = OWN + b"rules"  # Key of the note in a changelog
Offsets = dict[str, int]  # Next offset of each partition of `settings`; JSON has no other keys than text


class RulesNote(RulesInForce, kw_only=True, frozen=True, omit_defaults=True):
    """Rules of a stage partition."""

    settings: Offsets = {}  # how far `settings` was read for it
    since: dict[str, int] = {}  # first offset of each source topic to which they apply
    at: int = 0  # time of the change, milliseconds
    ended: bool = False  # nothing was folded after the checkpoint that wrote it


@dataclass(frozen=True, slots=True)
class RulesEdition:
    """Immutable rules and settings of one time."""

    source: RuleSource  # the rules by scope
    settings: Offsets  # how far `settings` was read for it


@dataclass(slots=True)
class TaskRules:
    """Rules of one task."""

    edition: RulesEdition | None = None  # edition in force; None before the first
    note: RulesNote | None = None  # note in the changelog; None before the first
    # offsets up to which the previous owner may have folded by the note
    bound: dict[TP, int] = field(default_factory=dict)
    held: bool = False  # nothing may be folded until a checkpoint with the next note is durable


_decode = msgspec.json.Decoder(RulesNote).decode
_encode = msgspec.json.Encoder(order="deterministic").encode

ReadSettings = Callable[[RuleSource, Offsets], Awaitable[None]]


class WorkerRules:
    """Rules of one worker's tasks."""

    def __init__(
        self,
        newest: RuleSource,
        *,
        settings: Callable[[], Offsets],
        read_settings: ReadSettings,
        put: Callable[[list[StageOutput], int], None],
        names: Mapping[str, str],
        metrics: LaneMetrics,
    ) -> None:
        """Create a rulebook without tasks.

        Args:
            newest: source of rules; changes while the worker runs.
            settings: offsets up to which `settings` is included in it.
            read_settings: applies the records of `settings` before given offsets to a source.
            put: takes the records of `rules`, and the partition of their task.
            names: catalogue names of the source topics, by real name.
            metrics: gets the name of the newest rules.
        """
        self.newest = newest  # current rules of this worker's files, environment and `settings`
        self._settings = settings
        self._read_settings = read_settings
        self._put = put
        self._names = names
        self._metrics = metrics
        self._edition = RulesEdition(newest.copy(), settings())
        self._changes = newest.changes

    def edition(self) -> RulesEdition:
        """Return the newest rules as they are now."""
        if self._changes != self.newest.changes:
            self._changes = self.newest.changes
            if not self.newest.equals(self._edition.source):
                self._edition = RulesEdition(self.newest.copy(), self._settings())
        self._metrics.rules = fingerprint(_in_force(self._edition.source))
        return self._edition

    async def recall(self, notes: Iterable[bytes | None]) -> list[TaskRules]:
        """Return the rules of tasks by the notes in their changelogs; tasks without a note use the newest rules."""
        newest = self.edition()
        known: dict[bytes, RulesEdition] = {}
        found = []
        for kept in notes:
            note = _read(kept)
            if note is None or note.ended:
                found.append(TaskRules(note=note))
                continue
            same = _encode(msgspec.structs.replace(note, since={}, at=0))
            if same not in known:
                known[same] = await self._edition_of(note, newest)
            found.append(TaskRules(known[same], note))
        self._compare([one.note for one in found if one.note is not None], newest)
        return found

    def begin(self, tasks: Collection[PartitionTask], ends: Mapping[TP, int]) -> bool:
        """Add tasks whose sources end at `ends`; return whether a checkpoint should be taken at once."""
        for task in tasks:
            rules: TaskRules = task.rules
            if rules.edition is None:
                rules.held = True
            else:
                rules.bound = {tp: end for tp, end in ends.items() if tp in task.next}
                self._announce(task)
        return self.holds(tasks)

    def holds(self, tasks: Collection[PartitionTask]) -> bool:
        """Whether a task waits for the checkpoint that changes its rules."""
        return any(task.rules.held for task in tasks)

    def turn(self, tasks: Collection[PartitionTask]) -> None:
        """Write the newest rules in the next checkpoint, for tasks with other rules that may change."""
        newest = self.edition()
        for task in tasks:
            rules: TaskRules = task.rules
            if rules.edition is newest:
                continue
            beyond = all(task.next[tp] >= bound for tp, bound in rules.bound.items())
            if not beyond and newest.source.rules.enabled:
                continue
            rules.held = True
            note = RulesNote(
                base=newest.source.base,
                environment=newest.source.environment or SettingsOverrides(),
                settings=newest.settings,
                since={self._names[tp.topic]: offset for tp, offset in task.next.items()},
                at=int(time.time() * 1000),
            )
            task.notes[RULES_KEY] = _encode(note)
            task.when_durable.append(partial(self._take, task, newest, note))

    def end(self, tasks: Collection[PartitionTask]) -> None:
        """Write in the last checkpoint that nothing is folded after it."""
        for task in tasks:
            rules: TaskRules = task.rules
            if rules.edition is not None and rules.note is not None:
                task.notes[RULES_KEY] = _encode(msgspec.structs.replace(rules.note, ended=True))

    def _take(self, task: PartitionTask, edition: RulesEdition, note: RulesNote) -> None:
        rules: TaskRules = task.rules
        rules.edition, rules.note, rules.held = edition, note, False
        rules.bound.clear()
        task.processor.source = edition.source
        self._announce(task)

    def _announce(self, task: PartitionTask) -> None:
        """Publish the change once the note is durable, and again after a recovery, as the first attempt may be lost."""
        note: RulesNote = task.rules.note
        for topic, offset in note.since.items():
            place = f"{topic}/{task.partition}"
            made = output_id(f"{place}/{_encode(note).decode()}", RULES_TYPE, 0)
            placed = RulesPlaced(
                id=made,
                time=rfc3339(note.at),
                schema_version=SCHEMA_VERSION,
                topic=topic,
                partition=task.partition,
                offset=offset,
                settings=note.settings,
                base=note.base,
                environment=note.environment,
            )
            self._put([StageOutput(RULES_TOPIC, place, _encode(placed), made, RULES_TYPE, note.at)], task.partition)

    async def _edition_of(self, note: RulesNote, newest: RulesEdition) -> RulesEdition:
        source = RuleSource(note.base, note.environment)
        if note.settings == newest.settings:
            source.replace(newest.source.scopes())
        else:
            await self._read_settings(source, note.settings)
        return newest if source.equals(newest.source) else RulesEdition(source, note.settings)

    def _compare(self, notes: Collection[RulesNote], newest: RulesEdition) -> None:
        """Log that tasks were folded by other rules: workers may have different files, or the file was changed."""
        own = fingerprint(_in_force(newest.source))
        others = [name for name in map(fingerprint, notes) if name != own]
        if others:
            log.warning(
                "%d of %d stage partitions were folded by other rules (%s) than those of this worker's files and "
                "environment (%s); unless they were changed just now, give every worker the same: `trustfold doctor` "
                "compares them",
                len(others), len(notes), ", ".join(sorted(set(others))), own,
            )  # fmt: skip


def _in_force(source: RuleSource) -> RulesInForce:
    return RulesInForce(base=source.base, environment=source.environment or SettingsOverrides())


def _read(kept: bytes | None) -> RulesNote | None:
    """Decode a note; None without one, or if another version's rules cannot be read."""
    if kept is None:
        return None
    try:
        return _decode(kept)
    except msgspec.ValidationError as error:
        log.warning(
            "the rules stored by another version cannot be read (%s); this worker's own are in force now",
            error,
        )
        return None
