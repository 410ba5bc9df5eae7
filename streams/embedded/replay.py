"""File replay: folds recorded events from files; prints nothing, writes nothing to disk.

Time is the events' own, except for lines with an implausible clock (`recorded_lines`); at the end one tick at the
largest time seen processes what is due.
"""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Protocol

from ...projections.emitter import StageOutput
from ...projections.local_topology import LocalTopology
from ...projections.rule_source import RuleSource
from ...rules.rules import RuleSet
from ...security.redaction import redact_record
from .recorded_lines import ArrivalOrder

STDIN = "-"


@contextmanager
def open_lines(name: str) -> Iterator[IO[bytes]]:
    """Open a file of lines: plain, gzip by its first bytes, or `-` for standard input, which stays open.

    Raises:
        OSError: when it cannot be read.
    """
    with nullcontext(sys.stdin.buffer) if name == STDIN else Path(name).open("rb") as raw:
        buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
        if buffered.peek(2)[:2] == b"\x1f\x8b":
            with gzip.open(buffered, "rb") as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield buffered


class FeedFunction(Protocol):
    """Function that folds records of a topic, as `LocalTopology.feed` does."""

    def __call__(self, topic: str, values: Iterable[bytes], *, timestamp: int) -> Iterable[StageOutput]:
        """Return all outputs of the records; `timestamp` is their arrival in milliseconds, or -1."""


class FileReplay:
    """Replay over any number of files."""

    def __init__(self, rules: RuleSet | RuleSource) -> None:
        """Start with default states."""
        self.topology = LocalTopology(rules)  # stages with their states
        self.lines = 0  # lines read so far; blank lines are not events

    def run(
        self,
        names: list[str],
        *,
        progress: Callable[[int], None] = lambda _bytes: None,
        feed: FeedFunction | None = None,
    ) -> Iterator[StageOutput]:
        """Fold every line of every file in order, then what is due at the largest time seen.

        A line that is a command or a record of `settings` takes effect there. `progress` gets the bytes of each line as
        it is read. `feed` replaces the topology's own, for callers that add to what each line causes.
        """
        feed = feed or self.topology.feed
        arrivals = ArrivalOrder()
        for name in names:
            with open_lines(name) as lines:
                for line in arrivals.of(self._values(lines, progress)):
                    yield from feed(line.topic, (line.value,), timestamp=line.arrived_ms)
        for line in arrivals.rest():
            yield from feed(line.topic, (line.value,), timestamp=line.arrived_ms)
        yield from self.topology.tick(self.topology.stream_time)

    def _values(self, lines: IO[bytes], progress: Callable[[int], None]) -> Iterator[bytes]:
        for line in lines:
            progress(len(line))
            value = line.strip()
            if value:
                self.lines += 1
                yield redact_record(value)
