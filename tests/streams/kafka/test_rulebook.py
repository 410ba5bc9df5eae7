"""When the rules of a stage partition change, and what is told of it; no broker."""

import asyncio
from collections.abc import Mapping

import orjson
from faust.types import TP
from msgspec import structs
from refolded import lenient
from trustfold.projections.emitter import StageOutput
from trustfold.projections.processor import StageProcessor
from trustfold.projections.rule_source import RuleSource
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import RuleSet
from trustfold.schemas.settings import SettingsOverrides
from trustfold.streams.kafka.metrics import LaneMetrics
from trustfold.streams.kafka.rulebook import RULES_KEY, WorkerRules
from trustfold.streams.kafka.store import MemoryStore
from trustfold.streams.kafka.task import PartitionTask

EVENTS = TP("t.events", 3)
QUIET = SettingsOverrides(nudge_level="off")


class Life:
    """One partition of the session stage, taken up by one worker after another; the store is its changelog."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.told: list[StageOutput] = []
        self.read: list[Mapping[str, int]] = []
        self.positions: dict[str, int] = {}

    def begin(self, source: RuleSource, *, at: int, end: int) -> None:
        """A worker takes the partition up at an offset; its log ends at another."""
        self.source = source
        self.book = WorkerRules(
            source,
            settings=lambda: dict(self.positions),
            read_settings=self.read_settings,
            put=lambda outputs, _partition: self.told.extend(outputs),
            names={"t.events": "events"},
            metrics=LaneMetrics(),
        )
        (rules,) = asyncio.run(self.book.recall([self.store.get(RULES_KEY)]))
        found = rules.edition.source if rules.edition is not None else source
        processor = StageProcessor(STAGES[0], 3, found)
        self.task = PartitionTask("session", 3, processor, self.store, 0, 0, {EVENTS: at}, rules=rules)
        self.book.begin([self.task], {EVENTS: end})

    async def read_settings(self, source: RuleSource, until: Mapping[str, int]) -> None:
        """As the follower: what the topic had before."""
        self.read.append(until)
        source.set("workspace:acme", QUIET)

    def checkpoint(self, *, last: bool = False) -> None:
        """Take one, and have it durable."""
        (self.book.end if last else self.book.turn)([self.task])
        items = self.task.take_snapshot()
        self.store.write(items, next_offset=0, epoch=0)
        for tell in self.task.when_durable:
            tell()
        self.task.when_durable.clear()

    @property
    def threshold(self) -> int:
        """Failures that escalate by the rules of the folds: shipped ones, or lenient ones."""
        return 5 if self.task.processor.source.base == lenient() else 3  # type: ignore[attr-defined]

    def places(self) -> list[tuple[int, int]]:
        """Offset and threshold of every record of `rules`."""
        bodies = [orjson.loads(one.value or b"{}") for one in self.told]
        return [
            (body["offset"], body["base"].get("trust", {}).get("default_rule", {}).get("count_threshold", 3))
            for body in bodies
        ]


def test_nothing_is_folded_before_the_first_note_is_durable() -> None:
    """A new partition waits for its first checkpoint, which says where its rules begin."""
    life = Life()
    life.begin(RuleSource(lenient()), at=0, end=50)
    assert life.book.holds([life.task])
    life.checkpoint()
    assert not life.book.holds([life.task])
    assert (life.threshold, life.places()) == (5, [(0, 5)])
    life.checkpoint()
    assert life.places() == [(0, 5)], "what holds is told once"


def test_changed_rules_hold_from_a_checkpoint_on() -> None:
    """Between the change and the checkpoint the folds go by the rules before; the note names the place."""
    life = Life()
    life.begin(RuleSource(RuleSet()), at=0, end=0)
    life.checkpoint()
    life.source.rebase(lenient())
    life.task.next[EVENTS] = 17
    assert life.threshold == 3
    life.checkpoint()
    assert (life.threshold, life.places()) == (5, [(0, 3), (17, 5)])
    life.source.rebase(structs.replace(lenient()))
    life.checkpoint()
    assert len(life.places()) == 2, "the same rules again are no change"


def test_a_successor_of_a_killed_worker_folds_again_by_the_rules_of_then() -> None:
    """Up to the log's end as it finds it; then its own rules hold. What was told is told again under the same id."""
    life = Life()
    life.begin(RuleSource(RuleSet()), at=0, end=0)
    life.checkpoint()
    life.begin(RuleSource(lenient()), at=10, end=30)
    assert (life.threshold, life.book.holds([life.task])) == (3, False)
    assert life.told[0] == life.told[1]
    life.task.next[EVENTS] = 29
    life.checkpoint()
    assert life.threshold == 3
    life.task.next[EVENTS] = 30
    life.checkpoint()
    assert (life.threshold, life.places()[2:]) == (5, [(30, 5)])


def test_a_successor_of_one_that_stopped_in_order_begins_with_its_own_rules() -> None:
    """Nothing was folded beyond the last checkpoint: a backlog is folded by the new rules."""
    life = Life()
    life.begin(RuleSource(RuleSet()), at=0, end=0)
    life.checkpoint()
    life.task.next[EVENTS] = 10
    life.checkpoint(last=True)
    life.begin(RuleSource(lenient()), at=10, end=1_000)
    assert life.book.holds([life.task])
    life.checkpoint()
    assert (life.threshold, life.places()[-1]) == (5, (10, 5))


def test_the_kill_switch_waits_for_nothing() -> None:
    """Records that a killed worker may have folded are passed over, too."""
    life = Life()
    life.begin(RuleSource(RuleSet()), at=0, end=0)
    life.checkpoint()
    life.begin(RuleSource(structs.replace(RuleSet(), enabled=False)), at=10, end=30)
    life.checkpoint()
    assert not life.task.processor.source.rules.enabled  # type: ignore[attr-defined]


def test_settings_of_then_are_read_again() -> None:
    """A killed worker had read less of `settings` than its successor: that much is read for what it folded."""
    life = Life()
    life.positions = {"0": 4}
    source = RuleSource(RuleSet())
    source.set("workspace:acme", QUIET)
    life.begin(source, at=0, end=0)
    life.checkpoint()
    life.positions = {"0": 9}
    life.begin(RuleSource(RuleSet()), at=10, end=30)
    assert life.read == [{"0": 4}]
    found: RuleSource = life.task.processor.source  # type: ignore[attr-defined]
    assert found.scopes() == {"workspace:acme": QUIET}
    life.task.next[EVENTS] = 30
    life.checkpoint()
    found = life.task.processor.source  # type: ignore[attr-defined]
    assert found.scopes() == {}


def test_a_note_of_another_version_gives_way() -> None:
    """Rules that this version cannot read are no reason to stand still."""
    life = Life()
    life.store.write([(RULES_KEY, b'{"base": {"trust": {"default_rule": 7}}}')], next_offset=0, epoch=0)
    life.begin(RuleSource(lenient()), at=10, end=30)
    life.checkpoint()
    assert life.threshold == 5
