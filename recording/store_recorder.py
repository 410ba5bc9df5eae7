"""Records the embedded engine: copies new records of its store into the history."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ..errors import ConfigError
from ..history.files import APPENDED_PARTITION, store_source
from ..history.history_error import HistoryFull
from ..history.parquet import RECORDED_TOPICS
from ..history.recorder import PartitionRecorder
from ..projections.topology import DECISION_TOPICS
from ..security.private_files import make_file
from ..streams.embedded.store import STORE_ID
from ..streams.embedded.store_views import CopiedRecord, StoreViews
from .status import RecordingStatus

PAGE = 2000  # Records read from the store at once
POLL_S = 1.0  # Seconds between two polls if there were no new records
TIDY_S = 300.0  # Seconds between two rounds of merging and deleting

# File with the copied position of both tables; it saves reading, and may be behind the recorded files
POSITIONS = ".positions.json"

OUTPUT_TOPICS = (*DECISION_TOPICS, "state", "dead-letters")
# Topics of inputs of which the engine writes records beside its log: finishes that it appends, records of calls
APPENDED_TOPICS = ("events", "outcomes")

# Topics of inputs, rules, and the timer events that the engine appends to its internal topics
LOG_TOPICS = tuple(topic for topic in RECORDED_TOPICS if topic not in OUTPUT_TOPICS)


def source_of_store(path: Path) -> str:
    """Source, as in `source_of`, of a store.

    Raises:
        StoreError: there is no such store.
    """
    with closing(StoreViews.open(path)) as views:
        return store_source(views.noted(STORE_ID), path)


class StoreRecording:
    """Copies one store into one recorder's directory."""

    def __init__(
        self,
        recorder: PartitionRecorder,
        path: Path,
        *,
        keep_days: int | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Take ownership of all partitions of the store.

        Raises:
            StoreError: there is no such store.
            ConfigError: the directory holds another store's history, or a later state of this one, or another process
                records it.
        """
        recorder.from_source(source_of_store(path))
        self._recorder, self._path, self._tail = recorder, path, StoreViews.open(path)
        self._keep_days, self._say = keep_days, say
        self._file = _file(path)
        self._marker = recorder.root / POSITIONS
        log_end, outputs_end = self._tail.ends()
        marks = _read(self._marker)
        if not (0 <= marks["log"] <= log_end and 0 <= marks["outputs"] <= outputs_end):
            marks = _NOTHING  # from another store
        logs = [recorder.own(topic, 0, marks["log"] + 1) for topic in LOG_TOPICS]
        outputs = [recorder.own(topic, 0, marks["outputs"] + 1) for topic in OUTPUT_TOPICS]
        outputs += [recorder.own(topic, APPENDED_PARTITION, marks["outputs"] + 1) for topic in APPENDED_TOPICS]
        if max(logs) > log_end + 1 or max(outputs) > outputs_end + 1:
            raise ConfigError(
                f"{recorder.root} holds more records than {path}, which must be an older copy: its new records "
                "would be taken for recorded ones. Name another directory (--history)"
            )
        self._log, self._outputs = self._in_files = min(logs) - 1, min(outputs) - 1
        self.status = RecordingStatus(recorder)
        self.status.assigned = len(LOG_TOPICS) + len(OUTPUT_TOPICS)

    def run(self, stopped: threading.Event, *, once: bool = False) -> None:
        """Copy until stopped, or once to the end; all copied records are in files when this returns.

        Raises:
            ConfigError: the store file was replaced by another store.
            HistoryError: the files cannot be written.
        """
        tidied = time.monotonic()
        while not stopped.is_set():
            self._turn()
            copied = self._copy()
            if self._recorder.due or (once and not copied):
                self._flush(stopped)
            if once and not copied and not self._recorder.rows:
                break
            if time.monotonic() - tidied >= TIDY_S:
                self._recorder.tidy(self._keep_days)
                tidied = time.monotonic()
            if not copied:
                self._check_file(stopped)
                stopped.wait(POLL_S)
        self.status.stopping = True
        while not once and not self._recorder.counts.disk_full and self._copy():
            pass  # records committed before the stop are still copied
        if self._recorder.rows and not self._recorder.counts.disk_full:
            self._flush(stopped)
        self._recorder.tidy(self._keep_days)

    def close(self) -> None:
        """Close the store; the caller closes the recorder."""
        self._tail.close()

    def _check_file(self, stopped: threading.Event) -> None:
        """Raise ConfigError if the store file was replaced: the new one is not recorded."""
        if _file(self._path) in {self._file, None}:  # or moved: the engine continues to write to it
            return
        if self._recorder.rows:
            self._flush(stopped)
        raise ConfigError(
            f"{self._path} has been replaced by another file; the old one is recorded. Start again, and with another "
            "directory (--history) if it is another store"
        )

    def _turn(self) -> None:
        """Update the liveness status and the lag of the files behind the store."""
        if not self._recorder.rows:
            self._in_files = self._log, self._outputs
        log_end, outputs_end = self._tail.ends()
        log, outputs = self._in_files
        self.status.lag = {("log", 0): log_end - log, ("outputs", 0): outputs_end - outputs}
        self.status.turn()

    def _copy(self) -> int:
        """Copy one page of each table; returns how many records were new."""
        if self._recorder.full:
            return 0
        log = self._tail.log(self._log, PAGE)
        for record in log:
            if record.topic in LOG_TOPICS:
                self._add(record, 0)
            self._log = record.offset
        outputs = self._tail.outputs(self._outputs, PAGE)
        for record in outputs:
            if record.topic in OUTPUT_TOPICS:
                self._add(record, 0)
            elif record.topic in APPENDED_TOPICS:
                self._add(record, APPENDED_PARTITION)
            self._outputs = record.offset
        return len(log) + len(outputs)

    def _add(self, record: CopiedRecord, partition: int) -> None:
        self._recorder.add(record.topic, partition, record.offset, record.arrived_ms, record.key, record.value)

    def _flush(self, stopped: threading.Event) -> None:
        """Write the waiting rows; if the disk is full, report it once and try again later."""
        was_full = self._recorder.counts.disk_full
        try:
            self._recorder.flush()
        except HistoryFull as full:
            if not was_full:
                self._say(str(full))
            stopped.wait(POLL_S)
            return
        if was_full:
            self._say("there is space again; recording continues where it stopped")
        _write(self._marker, {"log": self._log, "outputs": self._outputs})


_NOTHING = {"log": 0, "outputs": 0}


def _file(path: Path) -> tuple[int, int] | None:
    """Device and inode of a path; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _read(marker: Path) -> dict[str, int]:
    try:
        found = json.loads(marker.read_text(encoding="utf-8"))
        return {"log": int(found["log"]), "outputs": int(found["outputs"])}
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return _NOTHING


def _write(marker: Path, positions: dict[str, int]) -> None:
    made = marker.with_suffix(".new")
    try:
        make_file(made)
        made.write_text(json.dumps(positions), encoding="utf-8")
        made.rename(marker)
    except OSError:
        made.unlink(missing_ok=True)  # it only saves reading; the recorded files are authoritative
