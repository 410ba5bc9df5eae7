"""Events and decisions of a recorded history, found for the pages when the topics have them no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import orjson

from ...errors import TrustfoldError
from ...history.catalogue import connect
from ...history.files import source_of
from ...history.sessions.ranking import SessionSummary
from ...projections.topology import DECISION_TOPICS
from .source import Placed

log = logging.getLogger(__name__)

MAX_SESSIONS = 2_000
"""Sessions that are listed."""


class Recorded:
    """A directory that `trustfold record` fills from Kafka; where it holds nothing of it, nothing is found.

    Offsets are those of the topics' partitions.
    """

    def __init__(self, root: Path) -> None:
        """Look there when somebody asks."""
        self._root = root
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trustfold-recorded")
        self._connection: duckdb.DuckDBPyConnection | None = None

    async def sessions(self) -> list[SessionSummary]:
        """Latest sessions, those of the last days that are recorded."""
        rows = await self._ask(
            "SELECT session_id, workspace, user_id, model, calls, failures, patterns, epoch_ms(ended) "
            "FROM sessions, recorded_until WHERE ended > until - INTERVAL 3 DAY ORDER BY ended DESC LIMIT ?",
            [MAX_SESSIONS],
        )
        return [
            SessionSummary(
                session,
                workspace or "",
                user or "",
                model or "",
                calls,
                failures,
                0,
                (),
                patterns or 0,
                0,
                ended,
                turn_open=False,
            )
            for session, workspace, user, model, calls, failures, patterns, ended in rows
        ]

    async def events(self, session: str, before: int | None, limit: int) -> list[Placed]:
        """Latest input events of a session in front of an offset, oldest first."""
        rows = await self._ask(
            'SELECT "offset", record FROM recorded_events WHERE session_id = ? AND "offset" < ? AND record IS NOT NULL'
            ' ORDER BY "offset" DESC LIMIT ?',
            [session, before if before is not None else 1 << 62, limit],
        )
        return [Placed(offset, orjson.loads(record)) for offset, record in rows[::-1]]

    async def events_of(self, ids: Collection[str]) -> list[Placed]:
        """Input events and commands of the given ids, oldest first."""
        marks = ", ".join("?" * len(ids))
        rows = await self._ask(
            " UNION ALL ".join(
                f'SELECT arrived, "offset", record FROM recorded_{topic} WHERE id IN ({marks}) AND record IS NOT NULL'  # noqa: S608 - our own words
                for topic in ("events", "commands")
            ),
            [*ids, *ids],
        )
        return [Placed(offset, orjson.loads(record)) for _, offset, record in sorted(rows, key=lambda row: row[:2])]

    async def decision(self, decision_id: str) -> dict[str, Any] | None:
        """The decision of an id."""
        rows = await self._ask(
            " UNION ALL ".join(f"SELECT record FROM recorded_{topic} WHERE id = $1" for topic in DECISION_TOPICS)  # noqa: S608 - our own words
            + " LIMIT 1",
            [decision_id],
        )
        return orjson.loads(rows[0][0]) if rows else None

    def close(self) -> None:
        """End; a query under way is left to itself."""
        if self._connection is not None:
            self._connection.interrupt()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, question: str, values: Sequence[Any]) -> list[Any]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._rows, question, values)

    def _rows(self, question: str, values: Sequence[Any]) -> list[Any]:
        try:
            if self._connection is None:
                if not source_of(self._root).startswith("kafka "):
                    return []
                self._connection = connect(self._root, threads=1)
            return self._connection.execute(question, values).fetchall()
        except (duckdb.Error, TrustfoldError) as error:
            log.debug("the history was not read: %s", error)
            self._connection = None
            return []
