"""Places of histories: local directories, and addresses of object stores read by DuckDB's httpfs.

An address is also a `Path`: `Path("s3://bucket/team")` drops one of its slashes, which identifies it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import duckdb

from ..errors import ConfigError
from .files import data_files, source_of
from .history_error import HistoryError, unreachable

_ADDRESS = re.compile(r"(s3|s3a|s3n|gs|gcs|r2):/{1,2}([^/].*)")
_WEB = re.compile(r"(https?:)/{1,2}(.*)")
_SPECIAL = re.compile(r"([*?\[])")  # Characters of a directory's name that must be escaped in a glob pattern
NAMED = "[0-9]*-[0-9]*-[0-9]*.parquet"  # Glob pattern of the history's files; other files are not read

_TOPICS = r"SELECT DISTINCT regexp_extract(file, '.*/([^/]+)/date=[^/]+/[^/]+$', 1) FROM glob(?)"


def address_of(root: Path) -> str | None:
    """Address of a history in an object store, such as `s3://bucket/team`; None for a directory."""
    text = str(root)
    if web := _WEB.fullmatch(text):
        raise ConfigError(
            f"{web[1]}//{web[2]}: files below a web address cannot be listed; name a store (s3://BUCKET/…) or a "
            "directory"
        )
    found = _ADDRESS.fullmatch(text)
    return f"{found[1]}://{found[2]}" if found else None


def refuse_address(root: Path) -> None:
    """Raise ConfigError unless a place for writing is a directory."""
    if address := address_of(root):
        raise ConfigError(
            f"{address}: a recorder writes into a directory of this machine (--history DIR); copy the directory there "
            "afterwards, and `history`, `report`, `sql` and `whatif` read it from there"
        )


def opened(connection: duckdb.DuckDBPyConnection, roots: Iterable[Path]) -> None:
    """Set a connection up to read the object stores among the places; does nothing for directories."""
    address = next(filter(None, map(address_of, roots)), None)
    if address is None:
        return
    try:
        for statement in _opening():
            connection.execute(statement)
    except duckdb.Error as error:
        raise HistoryError(
            f"{address}: DuckDB {duckdb.__version__} has no extension httpfs here, which reads object stores; install "
            f"it once, with a network: python -c \"import duckdb; duckdb.execute('INSTALL httpfs')\" "
            f"({str(error).partition(chr(10))[0]})"
        ) from error


def _opening() -> Iterable[str]:
    """Statements that load httpfs; it reads AWS_ACCESS_KEY_ID and the like itself, but not the endpoint."""
    yield "LOAD httpfs"
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        yield f"SET s3_endpoint = '{quoted(host.rstrip('/'))}'"
        yield f"SET s3_use_ssl = {scheme != 'http'}"
        yield "SET s3_url_style = 'path'"


def pattern_of(root: Path, beside: Path | None = None) -> str:
    """Prefix of a glob pattern as an SQL text; with `beside`, a directory is relative to that one."""
    path = address_of(root)
    if path is None:
        path = str(root.absolute()) if beside is None else os.path.relpath(root.absolute(), beside)
    return quoted(_SPECIAL.sub(r"[\1]", path))


def surveyed(root: Path) -> tuple[set[str], str]:
    """Topics that have files in a place, and the source of its records (empty if unknown).

    Raises:
        ConfigError: nothing is recorded there.
        HistoryError: the object store cannot be read.
    """
    address = address_of(root)
    topics, source = _surveyed_there(root, address) if address else _surveyed_here(root)
    if not topics and source:
        raise ConfigError(
            f"{address or root}: a recorder has begun this history, but has written no file yet; the first ones appear "
            "within the seconds of --flush (30) after the first event"
        )
    if not topics:
        raise ConfigError(
            f"{address or root}: no history there; `trustfold record` makes one, --history or TRUSTFOLD_HISTORY names "
            "another place"
        )
    return topics, source


def _surveyed_here(root: Path) -> tuple[set[str], str]:
    topics = {file.topic for file in data_files(root)}
    if not topics and root.exists():
        if not root.is_dir():
            raise ConfigError(f"{root}: is a file; name the directory that `trustfold record` writes (--history)")
        if not os.access(root, os.R_OK | os.X_OK):
            raise ConfigError(f"{root}: cannot be read; check the rights of the directory")
    return topics, source_of(root)


def _surveyed_there(root: Path, address: str) -> tuple[set[str], str]:
    with duckdb.connect() as connection:
        opened(connection, [root])
        path = _SPECIAL.sub(r"[\1]", address)
        try:
            topics = connection.execute(_TOPICS, [f"{path}/*/date=*/{NAMED}"]).fetchall()
        except duckdb.Error as error:
            raise unreachable(error, address) from error
        source: Sequence[tuple[str]] = ()
        with suppress(duckdb.Error):  # missing, unless hidden files were copied, too
            source = connection.execute("SELECT content FROM read_text(?)", [f"{path}/.source"]).fetchall()
    return {topic for (topic,) in topics if not topic.startswith(".")}, source[0][0] if source else ""


def quoted(text: str) -> str:
    """A text or a path within an SQL literal."""
    return text.replace("'", "''")
