"""Records files of events, and the decisions about them, without a running engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..errors import ConfigError
from ..history.files import APPENDED_PARTITION
from ..history.history_error import HistoryError, HistoryFull
from ..history.recorder import PartitionRecorder
from ..projections.emitter import StageOutput, is_record_of_call
from ..projections.local_topology import LocalTopology
from ..projections.rule_source import RULES_TOPIC, RuleSource
from ..rules.rules import RuleSet
from ..security.redaction import redact_record
from ..streams.embedded.recorded_lines import UNKNOWN, ArrivalOrder, RecordedLine
from ..streams.embedded.replay import STDIN, open_lines
from .store_recorder import APPENDED_TOPICS, OUTPUT_TOPICS

_INPUTS = ("events", "commands", "settings")  # Topics that a line of a file may belong to


def files_source(names: Iterable[str]) -> str:
    """Source, as in `source_of`, of a directory with the records of files."""
    return "files " + ", ".join(Path(name).name for name in names)


def record_files(
    recorder: PartitionRecorder,
    names: tuple[str, ...],
    rules: RuleSet,
    advance: Callable[[int], None] = lambda _size: None,
) -> None:
    """Fold every line of every file, and record events and decisions; recording the same files again adds nothing.

    `advance` is called with the size of each line in bytes.

    Raises:
        ConfigError: standard input, but the directory already has records.
        HistoryError: the directory cannot be written.
    """
    try:
        _record(recorder, names, rules, advance)
    except HistoryFull as full:
        again = (
            "record standard input again into an empty directory"
            if STDIN in names
            else "record the same files again: what is there is not recorded twice"
        )
        raise HistoryError(
            f"{recorder.root}: the disk is full; {recorder.recorded:,} records were written. Free some space there, or "
            f"name another directory (--history, TRUSTFOLD_HISTORY), and {again}"
        ) from full


def _record(
    recorder: PartitionRecorder, names: tuple[str, ...], rules: RuleSet, advance: Callable[[int], None]
) -> None:
    recorder.from_source(files_source(names))
    for topic in (*_INPUTS, *OUTPUT_TOPICS):
        if recorder.own(topic, 0) and STDIN in names:
            raise ConfigError(f"{recorder.root}: it already holds records; standard input needs a directory of its own")
    for topic in APPENDED_TOPICS:
        recorder.own(topic, APPENDED_PARTITION)
    recorder.own(RULES_TOPIC, 0)
    source = RuleSource(rules)
    topology = LocalTopology(source)
    places: Counter[tuple[str, int]] = Counter()
    _add(recorder, places, RULES_TOPIC, 0, None, source.in_force())

    def keep(outputs: list[StageOutput]) -> None:
        for output in outputs:
            appended = output.topic == "events" or is_record_of_call(output)
            if output.topic in OUTPUT_TOPICS or appended:
                partition = APPENDED_PARTITION if appended else 0
                _add(recorder, places, output.topic, partition, output.key.encode(), output.value)

    for number, line in enumerate(_lines(names)):
        recorder.add(line.topic, 0, number, line.arrived_ms, None, line.value)  # one numbering over all inputs
        keep(topology.feed(line.topic, (redact_record(line.value),), timestamp=line.arrived_ms))
        advance(len(line.value) + 1)
        if recorder.full:
            recorder.flush()
    keep(topology.tick(topology.stream_time))
    recorder.flush()


def _add(
    recorder: PartitionRecorder,
    places: Counter[tuple[str, int]],
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes | None,
) -> None:
    offset = places[topic, partition]
    recorder.add(topic, partition, offset, UNKNOWN, key, value)
    places[topic, partition] = offset + 1


def _lines(names: tuple[str, ...]) -> Iterator[RecordedLine]:
    arrivals = ArrivalOrder()
    for name in names:
        with open_lines(name) as lines:
            yield from arrivals.of(value for line in lines if (value := line.strip()))
    yield from arrivals.rest()
