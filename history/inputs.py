"""What the folds were given, from the history, in the order in which it can be folded again.

The embedded engine's log has one numbering over all topics, so its order is exact. Kafka keeps order within a partition;
between partitions the arrival decides, as it did for the workers, though not to the same record.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import duckdb

from .errors import HistoryError
from .files import APPENDED_PARTITION

PAGE = 5000


class Input(NamedTuple):
    """One record to fold.

    Attributes:
        topic: source topic, catalogue name, or `settings`.
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


_PREPARE = f"""
CREATE OR REPLACE TABLE refold_inputs AS
WITH given AS (
    SELECT 'events' AS topic, "partition", "offset", arrived, time, key, record, coalesce(appended, false) AS echo FROM recorded_events
    WHERE record IS NOT NULL AND "partition" <> {APPENDED_PARTITION}
    UNION ALL
    SELECT 'commands', "partition", "offset", arrived, time, key, record, false FROM recorded_commands WHERE record IS NOT NULL
    UNION ALL
    SELECT 'settings', "partition", "offset", arrived, time, key, record, false FROM recorded_settings WHERE record IS NOT NULL OR gone
    UNION ALL
    SELECT 'outcomes', "partition", "offset", arrived, time, key, record, true FROM recorded_outcomes WHERE type = 'time.passed'
    UNION ALL
    SELECT 'standings', "partition", "offset", arrived, time, key, record, true FROM recorded_standings WHERE type = 'standing.due'
)
SELECT topic, coalesce(epoch_ms(arrived), -1) AS arrived_ms, key, record, echo, "partition", "offset",
       max(coalesce(arrived, TIMESTAMP 'epoch')) OVER (PARTITION BY topic, "partition" ORDER BY "offset") AS place
FROM given WHERE $since IS NULL OR topic = 'settings' OR time >= $since
ORDER BY place, "offset", topic, "partition"
"""  # noqa: S608 - our own number


def prepare(connection: duckdb.DuckDBPyConnection, since: datetime | None = None) -> int:
    """Line the inputs up, in the connection; returns how many there are.

    Raises:
        HistoryError: the files cannot be read.
    """
    moment = since.astimezone(UTC).replace(tzinfo=None) if since is not None else None
    try:
        connection.execute(_PREPARE, {"since": moment})
        found = connection.execute("SELECT count(*) FROM refold_inputs").fetchone()
    except duckdb.Error as error:
        raise HistoryError(f"the recorded inputs cannot be read ({error})") from error
    return int(found[0]) if found else 0


def inputs(connection: duckdb.DuckDBPyConnection) -> Iterator[Input]:
    """The inputs that were lined up, as often as wanted."""
    cursor = connection.cursor()
    try:
        cursor.execute("SELECT topic, arrived_ms, key, record, echo FROM refold_inputs")  # in the order of the insert
        while page := cursor.fetchmany(PAGE):
            for topic, arrived_ms, key, record, echo in page:
                yield Input(topic, arrived_ms, _bytes(key), _bytes(record), echo)
    finally:
        cursor.close()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
