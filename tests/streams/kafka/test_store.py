"""Stores of encoded states: the same contract over memory and RocksDB."""

from collections.abc import Callable
from pathlib import Path

import pytest
from trustfold.errors import ConfigError
from trustfold.streams.kafka.store import TOMBSTONE_LIFE_S, MemoryStore, PartitionStore, RocksStore

Make = Callable[[], PartitionStore]


@pytest.fixture(params=["memory", "rocksdb"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes a store of each kind."""
    if request.param == "memory":
        return MemoryStore
    pytest.importorskip("rocksdict")
    return lambda: RocksStore(tmp_path / "deep" / "s-0.db")


def test_states_are_kept_replaced_and_deleted(make: Make) -> None:
    """The last write of a key counts; None deletes; the place is remembered with it."""
    store = make()
    assert (store.next_offset, store.epoch) == (0, 0)
    store.write([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (b"never", None)], next_offset=7, epoch=5)
    assert store.get(b"a") == b"3"
    assert store.get(b"b") is None
    assert dict(store.items()) == {b"a": b"3"}
    assert (store.next_offset, store.epoch) == (7, 5)
    store.close()


def test_rocksdb_continues_where_it_was(tmp_path: Path) -> None:
    """A database opened again has its states, its place and its epoch, and shows no key of its own."""
    pytest.importorskip("rocksdict")
    path = tmp_path / "s-0.db"
    store = RocksStore(path)
    store.write([(b"a", b"1")], next_offset=9, epoch=4)
    store.close()
    again = RocksStore(path)
    assert dict(again.items()) == {b"a": b"1"}
    assert (again.next_offset, again.epoch) == (9, 4)
    again.close()


def test_rocksdb_that_slept_too_long_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy older than Kafka keeps tombstones may hold keys that are gone; it is read back from the beginning."""
    pytest.importorskip("rocksdict")
    path = tmp_path / "s-0.db"
    monkeypatch.setattr("trustfold.streams.kafka.store.time.time", lambda: 1_000_000.0)
    store = RocksStore(path)
    store.write([(b"a", b"1")], next_offset=9, epoch=4)
    store.close()
    monkeypatch.setattr("trustfold.streams.kafka.store.time.time", lambda: 1_000_001.0 + TOMBSTONE_LIFE_S)
    again = RocksStore(path)
    assert dict(again.items()) == {}
    assert (again.next_offset, again.epoch) == (0, 0)
    again.close()


def test_two_workers_cannot_share_a_data_directory(tmp_path: Path) -> None:
    """The second one is told to use a directory of its own."""
    pytest.importorskip("rocksdict")
    store = RocksStore(tmp_path / "s-0.db")
    with pytest.raises(ConfigError, match="data directory"):
        RocksStore(tmp_path / "s-0.db")
    store.close()
