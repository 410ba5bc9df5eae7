"""File replay: fold recorded events from files, print nothing, touch no disk.

Time is the events' own; at the end one tick with the largest time seen closes what is due (design 2, Time and order).
"""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO

import orjson

from ...projections.emit import Output
from ...projections.rule_source import TOPIC as SETTINGS
from ...projections.rule_source import RuleSource
from ...schemas.redaction import redact_record
from ...schemas.rules import Rules
from .topology import LocalTopology

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


def _topic_of(line: bytes) -> str:
    """Topic of a recorded line: that of events, but for settings recorded among them."""
    if b'"settings.changed"' in line:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            return "events"
        if isinstance(record, dict) and record.get("type") == "settings.changed":
            return SETTINGS
    return "events"


class Replay:
    """One replay over any number of files.

    Attributes:
        lines: lines read so far; blank lines are not events.
        topology: states after what was read.
    """

    def __init__(self, rules: Rules | RuleSource) -> None:
        """Start with clean states."""
        self.topology = LocalTopology(rules)
        self.lines = 0

    def run(self, names: list[str], *, progress: Callable[[int], None] = lambda _bytes: None) -> Iterator[Output]:
        """Fold every line of every file in order, then what is due at the largest time seen.

        A line that is a record of `settings` changes the settings from there on. `progress` is told the bytes of each
        line as it is read.
        """
        for name in names:
            with open_lines(name) as lines:
                for line in lines:
                    progress(len(line))
                    value = line.strip()
                    if value:
                        self.lines += 1
                        yield from self.topology.feed(_topic_of(value), (redact_record(value),))
        yield from self.topology.tick(self.topology.stream_time)
