"""Histories in object stores, alone and beside local ones; what is missing to read them is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from object_store import object_store
from recorded import told
from story import Story
from trustfold.errors import ConfigError
from trustfold.history.catalogue import connect, statements
from trustfold.history.history_error import HistoryError
from trustfold.history.locations import address_of
from trustfold.history.recorder import PartitionRecorder

KEPT = Path("s3://kept/team [a]/it's")


def has_extension() -> bool:
    """Whether DuckDB can load httpfs here without a network."""
    with duckdb.connect() as connection:
        try:
            connection.execute("LOAD httpfs")
        except duckdb.Error:
            return False
    return True


needs_extension = pytest.mark.skipif(
    not has_extension(), reason=f"DuckDB {duckdb.__version__} has no httpfs here; `INSTALL httpfs` needs its network"
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a running object store with a history in it; the environment has its address and a key."""
    told(tmp_path / "team [a]/it's", Story(session="far").fails("deploy", times=4))
    with object_store(tmp_path) as endpoint:
        for name, value in (
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", "reader"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("AWS_REGION", "us-east-1"),
        ):
            monkeypatch.setenv(name, value)
        yield tmp_path


@needs_extension
def test_a_history_in_a_bucket_answers_as_in_a_directory(store: Path) -> None:
    """The same rows of the same files, and a failure of the whole reading is none of a query."""
    with connect(KEPT) as there, connect(store / "team [a]/it's") as here:
        for query in (
            "SELECT time, tool_name, outcome FROM tool_calls ORDER BY id",
            "SELECT id FROM decisions ORDER BY id",
        ):
            assert there.execute(query).fetchall() == here.execute(query).fetchall() != []
        assert there.execute("SELECT DISTINCT history FROM recorded").fetchall() == [("s3://kept/team [a]/it's",)]


@needs_extension
def test_local_and_remote_histories_are_one(store: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sessions of both; what is in both counts once."""
    near = tmp_path_factory.mktemp("near")
    told(near, Story(session="far").fails("deploy", times=4))
    query = "SELECT session_id, count(*) FROM tool_calls GROUP BY ALL ORDER BY ALL"
    with connect((near, KEPT)) as connection:
        assert connection.execute(query).fetchall() == [("far", 4)]


@needs_extension
@pytest.mark.parametrize(
    ("place", "key", "says"),
    [
        ("s3://kept/team [a]/it's", "somebody", "AWS_ACCESS_KEY_ID"),
        ("s3://other/team", "reader", "name of the bucket"),
        ("s3://kept/nothing", "reader", "no history there"),
    ],
)
def test_what_cannot_be_read_says_why(
    store: Path, monkeypatch: pytest.MonkeyPatch, place: str, key: str, says: str
) -> None:
    """Whose fault it is and what to look at; never a key."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    with pytest.raises((HistoryError, ConfigError), match=says) as raised:
        connect(Path(place))
    assert place in str(raised.value)
    assert key not in str(raised.value)


@pytest.mark.skipif(has_extension(), reason="the extension is here")
def test_without_the_extension_the_way_to_it_is_told() -> None:
    """Nothing is fetched from the network by itself."""
    with pytest.raises(HistoryError, match="INSTALL httpfs"):
        connect(KEPT)


def test_addresses_are_known_though_paths_have_lost_a_slash() -> None:
    """Of object stores; a directory is none, and below a web address nothing can be listed."""
    assert address_of(Path("s3://bucket/a/b/")) == "s3://bucket/a/b"
    assert address_of(Path("gs://bucket")) == "gs://bucket"
    assert address_of(Path("s3")) is None
    assert address_of(Path("/s3:/bucket")) is None
    with pytest.raises(ConfigError, match=r"https://example\.org/h: files below a web address cannot be listed"):
        list(statements(Path("https://example.org/h")))


def test_nothing_is_recorded_into_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No directory of that name is made instead."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="writes into a directory"):
        PartitionRecorder(Path("s3://bucket/history"))
    assert list(tmp_path.iterdir()) == []
