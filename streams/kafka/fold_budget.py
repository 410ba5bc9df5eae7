"""Ends a worker whose fold of one record takes too long, and remembers the record for the workers after it.

C code such as `re` holds the interpreter while it runs: no thread and no signal handler of Python can then end it. So
the operating system counts the processor time, and ends the process by a signal that faulthandler answers in C: it
writes the stacks to a file. Beside it a file holds the place of the record that is being folded. The next worker that
uses the directory reads both; a record that has ended two becomes a dead letter (docs/operating.md, Outages).
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import logging
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from faust.types import TP

from ...security.private_files import locked, open_private, replace_file

log = logging.getLogger(__name__)

MOST_ENDED = 2  # Workers that a record may end before it is refused
_REARM_S = 0.5  # Seconds after which the next record gets the whole budget again

_PLACE_BYTES = 1_024
# Offset and timestamp of the record that is being folded, and the length of the partition's name behind them
_HEAD = struct.Struct("<qqH")

_STACK_LINES = 4


class FoldBudget:
    """Budget of processor time of each record."""

    def __init__(self, seconds: float) -> None:
        """Limit each record to these seconds, once started."""
        self.offset = -1  # offset of the record that was taken last
        self._seconds = seconds
        self._place: mmap.mmap | bytearray = bytearray(_PLACE_BYTES)
        self._ended: dict[str, int] = {}
        self._open: list[IO[bytes]] = []
        self._started = False

    def start(self, folder: Path) -> None:
        """End this process from now on if a record exceeds the budget; records of earlier ends come from a folder."""
        self._started = True
        stacks: Any = sys.stderr
        try:
            with locked(folder):
                self._ended = _recall(folder)
                held = open_private(folder / f"{os.getpid()}.place")
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stacks = open_private(folder / f"{os.getpid()}.stacks")
                held.truncate(_PLACE_BYTES)
                self._open = [held, stacks]
            with (folder / f"{os.getpid()}.place").open("r+b") as place:
                self._place = mmap.mmap(place.fileno(), _PLACE_BYTES)
        except OSError as error:
            log.warning("a record that ends the worker is not remembered: %s; set TRUSTFOLD_DATA_DIR", error)
        faulthandler.register(signal.SIGVTALRM, file=stacks, all_threads=False, chain=True)

    def parts(self, tp: TP, records: Sequence[Any]) -> Iterable[tuple[bool, Iterable[Any]]]:
        """Return the records of a partition in groups: those to fold, and those that have ended too many workers."""
        name = f"{tp.topic}/{tp.partition}/"
        refused = {key for key, times in self._ended.items() if times >= MOST_ENDED and key.startswith(name)}
        if not refused:
            return [(False, records)]
        return groupby(records, lambda record: f"{name}{record.offset}/{record.timestamp}" in refused)

    @contextmanager
    def watched(self, tp: TP, records: Iterable[Any]) -> Iterator[Iterator[Any]]:
        """Yield the records to fold; each has the budget from when it is taken."""
        if not self._started:
            yield self._taken(records)
            return
        name = f"{tp.topic}/{tp.partition}".encode()
        self._place[_HEAD.size : _HEAD.size + len(name)] = name
        _HEAD.pack_into(self._place, 0, -1, -1, len(name))
        try:
            yield self._taken(records)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _taken(self, records: Iterable[Any]) -> Iterator[Any]:
        place, armed = self._place, 0.0
        note = struct.Struct("<qq").pack_into
        for record in records:
            self.offset = record.offset
            note(place, 0, record.offset, record.timestamp)
            now = time.monotonic()
            if now - armed > _REARM_S and self._started:
                signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds)
                armed = now
            yield record


def _recall(folder: Path) -> dict[str, int]:
    """Return how many workers each record has ended, after adding those that ended since the last call."""
    known = folder / "ended.json"
    ended: dict[str, int] = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
    for path in sorted(folder.glob("*.place")):
        with path.open("rb") as place:
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # that worker runs
            stacks = path.with_suffix(".stacks")
            told = stacks.read_text(errors="replace").splitlines() if stacks.exists() else []
            text = place.read(_PLACE_BYTES)
        if told and len(text) == _PLACE_BYTES:
            offset, timestamp, length = _HEAD.unpack_from(text)
            name = text[_HEAD.size : _HEAD.size + length].decode(errors="replace")
            key = f"{name}/{offset}/{timestamp}"
            ended[key] = ended.get(key, 0) + 1
            log.error(
                "a worker was ended because %s, offset %d, took too much processor time (%d of %d times until it "
                "becomes a dead letter): %s",
                name, offset, ended[key], MOST_ENDED, " ".join(" ".join(told[:_STACK_LINES]).split()),
            )  # fmt: skip
        stacks.unlink(missing_ok=True)
        path.unlink()
    replace_file(known, json.dumps(ended))
    return ended
