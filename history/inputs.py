"""What the folds were given, from the history, in the order in which it can be folded again.

The embedded engine's log and recorded files have one numbering over all inputs, so their order is exact. Kafka keeps
order within a partition; between partitions the arrival decides, as it did for the workers, though not to the same
record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import duckdb

from ..projections.rule_source import RULES_TOPIC
from .catalogue import no_bar
from .errors import HistoryError
from .files import APPENDED_PARTITION

PAGE = 5000


class Input(NamedTuple):
    """One record to fold.

    Attributes:
        topic: source topic, catalogue name, or `settings`, or `rules`: what was folded by from there on.
        arrived_ms: record timestamp in milliseconds; -1 when unknown.
        key: record key, which names the scope of a setting.
        value: the record; None clears a setting.
        echo: the engine appended it when something fell due.
    """

    topic: str
    arrived_ms: int
    key: bytes | None
    value: bytes | None
    echo: bool


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs in their order, in a file, so that memory holds a page of them, and other processes can read them, too.

    Attributes:
        path: Parquet file, gone with the block of `lined_up`.
        count: how many there are.
        whole: sessions that are in it from their beginning and that something happened in since the time asked for;
            None when no time was asked for: all are.
        active: whether something happened in any session since then.
    """

    path: Path
    count: int
    whole: frozenset[str] | None = None
    active: bool = True

    def __iter__(self) -> Iterator[Input]:
        """The inputs, as often as wanted."""
        with duckdb.connect() as connection:
            connection.execute("SET threads = 1")
            no_bar(connection)
            connection.execute(
                "SELECT topic, arrived_ms, key, record, echo FROM read_parquet(?)", [str(self.path)]
            )  # in the order of the file
            while page := connection.fetchmany(PAGE):
                for topic, arrived_ms, key, record, echo in page:
                    yield Input(topic, arrived_ms, _bytes(key), _bytes(record), echo)


_SINCE = """
CREATE OR REPLACE TEMP TABLE refold_sessions AS
SELECT session_id, min(time) >= $since AS whole FROM recorded_events
WHERE fault IS NULL AND session_id IS NOT NULL GROUP BY session_id HAVING max(time) >= $since
"""

# What the embedded engine appends itself, which has keys, it folds by its own time, whatever the clock says.
_ORDERED = f"""
WITH given AS (
    SELECT 'events' AS topic, "partition", "offset", arrived, key, record, coalesce(appended, false) AS echo
    FROM recorded_events WHERE record IS NOT NULL AND "partition" <> {APPENDED_PARTITION} AND (
        $warm IS NULL OR time >= $warm OR session_id IN (SELECT session_id FROM refold_sessions))
    UNION ALL
    SELECT 'commands', "partition", "offset", arrived, key, record, false FROM recorded_commands WHERE record IS NOT NULL
    UNION ALL
    SELECT 'settings', "partition", "offset", arrived, key, record, false FROM recorded_settings
    WHERE record IS NOT NULL OR gone
    UNION ALL
    SELECT '{RULES_TOPIC}', "partition", "offset", arrived, key, record, false FROM recorded_rules WHERE record IS NOT NULL
    UNION ALL
    SELECT 'outcomes', "partition", "offset", arrived, key, record, true FROM recorded_outcomes
    WHERE type = 'time.passed' AND ($warm IS NULL OR time >= $warm)
    UNION ALL
    SELECT 'standings', "partition", "offset", arrived, key, record, true FROM recorded_standings
    WHERE type = 'standing.due' AND ($warm IS NULL OR time >= $warm)
)
SELECT topic, CASE WHEN one_log AND echo AND key IS NOT NULL THEN -1 ELSE coalesce(epoch_ms(arrived), -1) END AS arrived_ms,
       key, record, echo
FROM (
    SELECT *, CASE WHEN one_log THEN NULL
              ELSE max(coalesce(arrived, TIMESTAMP 'epoch')) OVER (PARTITION BY topic, "partition" ORDER BY "offset")
              END AS place
    FROM given, (SELECT source LIKE 'store %' OR source LIKE 'files %' AS one_log FROM recorded_from)
)
ORDER BY place, "offset", topic <> '{RULES_TOPIC}', topic, "partition"
"""  # noqa: S608 - our own numbers and names


@contextmanager
def lined_up(
    connection: duckdb.DuckDBPyConnection, since: datetime | None = None, warm: datetime | None = None
) -> Iterator[Inputs]:
    """Line the inputs up in a temporary file, which is gone when the block is left.

    Args:
        connection: of `catalogue.connect`.
        since: leave out what has no part in what was decided from then on: sessions that were over before `warm` are
            not read. Sessions that were not are read from their beginning; commands, settings and rules always.
        warm: folded from here on for the states of what sessions share. [default: `since`]

    Raises:
        HistoryError: the files cannot be read, or there is no room for the temporary one.
    """
    begin, start = _moment(since), _moment(warm or since)
    whole: frozenset[str] | None = None
    active = True
    with TemporaryDirectory(prefix="trustfold-whatif-") as folder:
        path = Path(folder, "inputs.parquet")
        quoted = str(path).replace("'", "''")
        with suppress(duckdb.Error):  # it was needed before; then it stays where it is
            connection.execute(f"SET temp_directory = '{folder}'")
        try:
            if begin is not None:
                connection.execute(_SINCE, {"since": begin})
                rows = connection.execute("SELECT session_id, whole FROM refold_sessions").fetchall()
                whole, active = frozenset(name for name, is_whole in rows if is_whole), bool(rows)
            else:
                connection.execute("CREATE OR REPLACE TEMP TABLE refold_sessions AS SELECT '' AS session_id")
            written = connection.execute(
                f"COPY ({_ORDERED}) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)", {"warm": start}
            ).fetchone()
        except duckdb.Error as error:
            raise HistoryError(f"the recorded inputs cannot be read ({error})") from error
        yield Inputs(path, int(written[0]) if written else 0, whole, active)


def _moment(time: datetime | None) -> datetime | None:
    return time.astimezone(UTC).replace(tzinfo=None) if time is not None else None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
