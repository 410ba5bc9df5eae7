"""Inputs of the folds, read from the history in the order of a replay.

The embedded engine's log and recorded files have one numbering over all inputs, so their order is exact. Kafka keeps
order within a partition; between partitions the arrival decides, as it did for the workers, though not to the same
record. Which rules an input was folded by is exact on both: the embedded log has them at their place, and on Kafka
`recorded_rules` names the offset of each partition that they hold from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple

import duckdb
import orjson

from ..projections.rule_source import RULES_TOPIC
from .catalogue import no_bar
from .files import APPENDED_PARTITION
from .history_error import HistoryError
from .locations import quoted

PAGE = 5000

# Fields of a record of `rules` with the rules themselves, without their position
_SAYS = ("base", "environment", "settings")


class FoldInput(NamedTuple):
    """Record to fold."""

    topic: str  # source topic, catalogue name, or `settings`, or `rules`: what was folded by from there on
    arrived_ms: int  # record timestamp in milliseconds; -1 when unknown
    key: bytes | None  # record key, which names the scope of a setting
    value: bytes | None  # the record; None clears a setting
    echo: bool  # the engine appended it when something fell due
    # the rules it was folded by: a place in `InputFile.editions`; None where the records do not tell
    edition: int | None = None
    # likewise for the outcomes and standings that it caused, by topic, a slash and their key
    caused: Mapping[str, int] = MappingProxyType({})


class RecordedSetting(NamedTuple):
    """Recorded record of `settings`."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class InputFile:
    """Ordered inputs in a file, so that memory holds only a page of them."""

    path: Path  # Parquet file, gone with the block of `lined_up`
    count: int  # number of inputs
    # sessions that are in it from their beginning and that something happened in since the time asked for; None when no
    # time was asked for: all are
    whole: frozenset[str] | None = None
    active: bool = True  # whether something happened in any session since then
    editions: tuple[bytes, ...] = ()  # records of `rules` that differ in what they say, of a history of Kafka
    settings: tuple[RecordedSetting, ...] = ()  # all of `settings`, for them
    # `FoldInput.caused` of the events that workers appended, by their id: a session's next event may have revealed what
    # fell due before the appended one was read
    appended: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[FoldInput]:
        """Yield the inputs; may be repeated."""
        with duckdb.connect() as connection:
            connection.execute("SET threads = 1")
            no_bar(connection)
            connection.execute(
                "SELECT topic, arrived_ms, key, record, echo, edition, caused FROM read_parquet(?)", [str(self.path)]
            )  # in the order of the file
            while page := connection.fetchmany(PAGE):
                for topic, arrived_ms, key, record, echo, edition, caused in page:
                    yield FoldInput(topic, arrived_ms, _bytes(key), _bytes(record), echo, edition, caused or {})


_SINCE = """
CREATE OR REPLACE TEMP TABLE refold_sessions AS
SELECT session_id, min(time) >= $since AS whole FROM recorded_events
WHERE fault IS NULL AND session_id IS NOT NULL GROUP BY session_id HAVING max(time) >= $since
"""

# Timer records that the embedded engine appends have keys; it folds them by their own time, not the clock.
_ORDERED = f"""
WITH given AS (
    SELECT 'events' AS topic, "partition", "offset", arrived, key, record, coalesce(appended, false) AS echo, id
    FROM recorded_events WHERE record IS NOT NULL AND "partition" <> {APPENDED_PARTITION} AND (
        $warm IS NULL OR time >= $warm OR session_id IN (SELECT session_id FROM refold_sessions))
    UNION ALL
    SELECT 'commands', "partition", "offset", arrived, key, record, false, id
    FROM recorded_commands WHERE record IS NOT NULL
    UNION ALL
    SELECT 'settings', "partition", "offset", arrived, key, record, false, NULL FROM recorded_settings
    WHERE record IS NOT NULL OR gone
    UNION ALL
    SELECT '{RULES_TOPIC}', "partition", "offset", arrived, key, record, false, NULL FROM recorded_rules
    WHERE record IS NOT NULL AND source_topic IS NULL
    UNION ALL
    SELECT 'outcomes', "partition", "offset", arrived, key, record, true, id FROM recorded_outcomes
    WHERE type = 'time.passed' AND ($warm IS NULL OR time >= $warm)
    UNION ALL
    SELECT 'standings', "partition", "offset", arrived, key, record, true, id FROM recorded_standings
    WHERE type = 'standing.due' AND ($warm IS NULL OR time >= $warm)
)
SELECT placed.topic AS topic,
       CASE WHEN one_log AND echo AND key IS NOT NULL THEN -1 ELSE coalesce(epoch_ms(arrived), -1) END AS arrived_ms,
       key, record, echo, own.edition AS edition, editions AS caused
FROM (
    SELECT *, CASE WHEN one_log THEN NULL
              ELSE max(coalesce(arrived, TIMESTAMP 'epoch')) OVER (PARTITION BY topic, "partition" ORDER BY "offset")
              END AS place
    FROM given, (SELECT source LIKE 'store %' OR source LIKE 'files %' AS one_log FROM recorded_from)
) AS placed
ASOF LEFT JOIN refold_editions AS own
    ON placed.topic = own.topic AND placed."partition" = own."partition" AND placed."offset" >= own."offset"
LEFT JOIN refold_caused ON cause = placed.id
ORDER BY place, placed."offset", placed.topic <> '{RULES_TOPIC}', placed.topic, placed."partition"
"""  # noqa: S608 - constants of this module

# Messages caused by an event are on other partitions, whose rules changed at their own offsets.
_CAUSED = """
CREATE OR REPLACE TEMP TABLE refold_caused AS
SELECT cause, map(list(place), list(edition)) AS editions FROM (
    SELECT cause, told.topic || '/' || key AS place, arg_min(edition, told."offset") AS edition FROM (
        SELECT 'outcomes' AS topic, "partition", "offset", key, cause FROM recorded_outcomes
        UNION ALL
        SELECT 'standings', "partition", "offset", key, cause FROM recorded_standings
    ) AS told
    ASOF JOIN refold_editions AS held
        ON told.topic = held.topic AND told."partition" = held."partition" AND told."offset" >= held."offset"
    WHERE cause IS NOT NULL AND key IS NOT NULL
    GROUP BY ALL
)
GROUP BY cause
"""

_APPENDED = "SELECT cause, editions FROM refold_caused JOIN recorded_events ON id = cause WHERE appended"


@contextmanager
def lined_up(
    connection: duckdb.DuckDBPyConnection, since: datetime | None = None, warm: datetime | None = None
) -> Iterator[InputFile]:
    """Write the ordered inputs into a temporary file, which is deleted at the end of the block.

    Args:
        connection: connection from `catalogue.connect`.
        since: leave out what has no part in what was decided from then on: sessions that were over before `warm` are
            not read. Sessions that were not are read from their beginning; commands, settings and rules always.
        warm: start of folding, to restore states shared by sessions. [default: `since`]

    Raises:
        HistoryError: the files cannot be read, or there is no space for the temporary one.
    """
    begin, start = _moment(since), _moment(warm or since)
    whole: frozenset[str] | None = None
    active = True
    with TemporaryDirectory(prefix="trustfold-whatif-") as folder:
        path = Path(folder, "inputs.parquet")
        with suppress(duckdb.Error):  # DuckDB has used it already and cannot change it
            connection.execute(f"SET temp_directory = '{folder}'")
        try:
            if begin is not None:
                connection.execute(_SINCE, {"since": begin})
                rows = connection.execute("SELECT session_id, whole FROM refold_sessions").fetchall()
                whole, active = frozenset(name for name, is_whole in rows if is_whole), bool(rows)
            else:
                connection.execute("CREATE OR REPLACE TEMP TABLE refold_sessions AS SELECT '' AS session_id")
            editions = _editions(connection)
            settings = _settings(connection) if editions else ()
            appended = dict(connection.execute(_APPENDED).fetchall())
            written = connection.execute(
                f"COPY ({_ORDERED}) TO '{quoted(str(path))}' (FORMAT parquet, COMPRESSION zstd)", {"warm": start}
            ).fetchone()
        except duckdb.Error as error:
            raise HistoryError(f"the recorded inputs cannot be read ({error})") from error
        yield InputFile(path, int(written[0]) if written else 0, whole, active, editions, settings, appended)


def _editions(connection: duckdb.DuckDBPyConnection) -> tuple[bytes, ...]:
    """Rules in force in the partitions of Kafka, oldest first; also creates tables of the offsets they apply from."""
    connection.execute(
        'CREATE OR REPLACE TEMP TABLE refold_editions (topic VARCHAR, "partition" BIGINT, "offset" BIGINT, '
        "edition INTEGER)"
    )
    rows = connection.execute(
        'SELECT source_topic, source_partition, source_offset, arg_max(record, "offset"), min(time) AS told '
        "FROM recorded_rules WHERE record IS NOT NULL AND source_topic IS NOT NULL GROUP BY ALL ORDER BY told"
    ).fetchall()
    known: dict[bytes, int] = {}
    kept: list[bytes] = []
    for topic, partition, offset, record, _ in rows:
        body = orjson.loads(record)
        said = orjson.dumps([body.get(name) for name in _SAYS], option=orjson.OPT_SORT_KEYS)
        if said not in known:
            known[said] = len(kept)
            kept.append(record.encode())
        connection.execute("INSERT INTO refold_editions VALUES (?, ?, ?, ?)", [topic, partition, offset, known[said]])
    connection.execute(_CAUSED)
    return tuple(kept)


def _settings(connection: duckdb.DuckDBPyConnection) -> tuple[RecordedSetting, ...]:
    rows = connection.execute(
        'SELECT "partition", "offset", key, record FROM recorded_settings WHERE record IS NOT NULL OR gone '
        'ORDER BY "partition", "offset"'
    ).fetchall()
    return tuple(
        RecordedSetting(partition, offset, _bytes(key), _bytes(record)) for partition, offset, key, record in rows
    )


def _moment(time: datetime | None) -> datetime | None:
    return time.astimezone(UTC).replace(tzinfo=None) if time is not None else None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
