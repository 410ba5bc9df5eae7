"""Recording a store that is not what it was: replaced, older, with a position that is nonsense."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from recorded import ARRIVED, rows, small_event
from trustfold.errors import ConfigError
from trustfold.history.recorder import PartitionRecorder
from trustfold.recording.store_recorder import POSITIONS, StoreRecording
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded import store_views
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.store_views import StoreViews


def ingest(store: Path, numbers: range, *, arrived_ms: int = ARRIVED) -> None:
    """Events into a store."""
    with EmbeddedEngine.open(store, RuleSet()) as engine:
        engine.ingest([small_event(number) for number in numbers], arrived_ms=arrived_ms)


@contextmanager
def recording(store: Path, root: Path) -> Iterator[StoreRecording]:
    """A recording, closed in the end."""
    recorder = PartitionRecorder(root)
    try:
        made = StoreRecording(recorder, store)
        try:
            yield made
        finally:
            made.close()
    finally:
        recorder.close()


def record(store: Path, root: Path) -> list[str]:
    """Record to the end; ids of all recorded events."""
    with recording(store, root) as made:
        made.run(threading.Event(), once=True)
    return [row[0] for row in rows(root, 'SELECT id FROM recorded_events ORDER BY "offset"')]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "\x00",
        '{"log": 1e400, "outputs": 0}',
        '{"log": 999999, "outputs": 999999}',
        '{"log": -5, "outputs": 2}',
        '{"log": "x"}',
    ],
)
def test_a_position_that_is_nonsense_is_not_believed(text: str, tmp_path: Path) -> None:
    """It only saves reading; the names of the files say what is recorded."""
    store, root = tmp_path / "store.sqlite", tmp_path / "history"
    ingest(store, range(5))
    record(store, root)
    (root / POSITIONS).write_text(text)
    ingest(store, range(5, 8))
    assert record(store, root) == [f"e{number}" for number in range(8)]


def test_an_older_copy_of_a_store_is_told(tmp_path: Path) -> None:
    """What comes next has the numbers of what is recorded and would be passed over."""
    store, root = tmp_path / "store.sqlite", tmp_path / "history"
    ingest(store, range(3))
    shutil.copy(store, tmp_path / "copy")
    ingest(store, range(3, 9))
    record(store, root)
    for path in tmp_path.glob("store.sqlite*"):
        path.unlink()
    shutil.copy(tmp_path / "copy", store)
    ingest(store, range(20, 22))
    with pytest.raises(ConfigError, match=r"holds more records than .*an older copy"):
        record(store, root)


def test_another_store_in_the_place_of_one_that_is_recorded_is_told(tmp_path: Path) -> None:
    """Nothing would ever come from the old file again."""
    store, root = tmp_path / "store.sqlite", tmp_path / "history"
    ingest(store, range(3))
    ingest(tmp_path / "other", range(10, 20))
    with recording(store, root) as made:
        (tmp_path / "other").rename(store)
        with pytest.raises(ConfigError, match="has been replaced by another file; the old one is recorded"):
            made.run(threading.Event())
    assert rows(root, "SELECT id FROM recorded_events ORDER BY 1") == [("e0",), ("e1",), ("e2",)]


def test_a_page_of_long_records_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand records of a mebibyte would not fit into memory."""
    store = tmp_path / "store.sqlite"
    ingest(store, range(100))
    monkeypatch.setattr(store_views, "PAGE_BYTES", 1000)
    reader = StoreViews.open(store)
    page = reader.log(0, 2000)
    assert 1 < len(page) < 20
    assert reader.log(page[-1].offset, 2000)[0].offset == page[-1].offset + 1
    reader.close()
    assert record(store, tmp_path / "history") == [f"e{number}" for number in range(100)]


def test_forgetting_everything_gives_no_number_twice(tmp_path: Path) -> None:
    """A recorder goes on by numbers: those of the forgotten are recorded."""
    store, root = tmp_path / "store.sqlite", tmp_path / "history"
    ingest(store, range(3))
    record(store, root)
    with EmbeddedEngine.open(store, RuleSet()) as engine:
        engine.forget({"events": ARRIVED + 1})
    ingest(store, range(3, 6), arrived_ms=ARRIVED + 2)
    assert record(store, root) == [f"e{number}" for number in range(6)]
