"""Complete topology in one process and one partition; used by the embedded engine, replay and tests.

Pure like the folds: it routes records between the stages' processors and returns their outputs. The callers provide
time, input and durability.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..rules.rules import RuleSet
from .emitter import StageOutput
from .processor import StageProcessor
from .rule_source import TOPIC as SETTINGS
from .rule_source import RuleSource, source_of
from .stage import TopologyStage
from .topology import STAGE_OF_TOPIC, STAGES


class LogRecord(NamedTuple):
    """Record of the local log, with the attributes that processors read."""

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int = -1  # arrival, milliseconds; -1 if unknown (a replayed file), and then event time is used
    headers: tuple[tuple[str, bytes], ...] = ()


Load = Callable[[str, bytes], bytes | None]


class LocalTopology:
    """All stages over one partition."""

    def __init__(
        self,
        rules: RuleSet | RuleSource,
        *,
        load: Load = lambda _stage, _key: None,
        next_offsets: dict[str, int] | None = None,
        choose: Callable[[str, LogRecord], RuleSource] | None = None,
        stages: Iterable[TopologyStage[Any]] = STAGES,
    ) -> None:
        """Start from stored states (`load` by stage name and key) at the given log positions.

        `choose` returns the rules for a record of a topic, if they differ. With fewer `stages`, records for the others
        are returned as outputs and not folded.
        """
        self._choose = choose
        self.source = source_of(rules)  # rules by scope; records of `settings` change it
        # next offset of every source topic, and of `settings`
        self.next_offsets = dict.fromkeys((*STAGE_OF_TOPIC, SETTINGS), 0)
        self.next_offsets.update(next_offsets or {})
        # processors by stage name
        self.processors: dict[str, StageProcessor] = {
            stage.name: StageProcessor(stage, 0, self.source, _bound(load, stage.name)) for stage in stages
        }
        self._folding = {
            topic: self.processors[stage.name]
            for topic, stage in STAGE_OF_TOPIC.items()
            if stage.name in self.processors
        }

    @property
    def stream_time(self) -> int:
        """Return the largest effective time seen by any stage, milliseconds."""
        return max(processor.stream_time for processor in self.processors.values())

    def feed(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        timestamp: int = -1,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> list[StageOutput]:
        """Append records to a source topic and fold them and all they cause; return every output, in order.

        Outputs to source topics (outcomes, standings, appended events) are folded before the next record is read, so
        the decisions of one event are contiguous.
        """
        left: list[StageOutput] = []
        for value in values:
            offset = self.next_offsets[topic]
            self.next_offsets[topic] = offset + 1
            record = LogRecord(key, value, offset, timestamp, headers)
            if topic == SETTINGS:
                letter = self.source.fold(record, 0)
                left += [letter] if letter is not None else []
                continue
            processor = self._folding[topic]
            if self._choose is not None:
                processor.source = self._choose(topic, record)
            for output in processor.process(topic, (record,)):
                left += self.append(output)
        return left

    def next_due(self) -> int | None:
        """Return the earliest deadline of any stage, milliseconds; None without one."""
        times = [due for processor in self.processors.values() if (due := processor.next_due()) is not None]
        return min(times, default=None)

    def tick(self, now: int) -> list[StageOutput]:
        """Append and fold everything due at or before `now`, until nothing is."""
        left: list[StageOutput] = []
        while due := self.due(now):
            for output in due:
                left += self.append(output)
        return left

    def due(self, now: int) -> list[StageOutput]:
        """Return records to `append` for all deadlines at or before `now`; each is returned once."""
        return [output for processor in self.processors.values() for output in processor.due(now)]

    def append(self, output: StageOutput) -> list[StageOutput]:
        """Append a record to its topic and fold it and all it causes; return it and every output, in order."""
        if output.topic not in self._folding:
            return [output]
        headers = (("traceparent", output.traceparent.encode()),) if output.traceparent else ()
        return [output, *self.feed(output.topic, (output.value,), key=output.key.encode(), headers=headers)]

    def counted(self) -> Counter[str]:
        """Return the counters of all stages' folds since the last call, by name."""
        counts: Counter[str] = Counter()
        for processor in self.processors.values():
            counts.update(processor.counted())
        return counts


def _bound(load: Load, stage: str) -> Callable[[bytes], bytes | None]:
    return lambda key: load(stage, key)
