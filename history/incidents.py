"""The view `incidents` of a history: its last states and sessions, ranked by the definition that everything shares."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import orjson

from ..projections.incidents import NEEDED, OpenAsk, SessionNews, pattern_of, ranked
from ..schemas.decisions import PatternDetected, readable_decision
from ..schemas.events import epoch_ms
from ..schemas.public_state import readable_state
from .locations import quoted

if TYPE_CHECKING:
    import duckdb


def rank(connection: duckdb.DuckDBPyConnection) -> None:
    """Rank the incidents of a catalogue, as its filters are, and make them its view `incidents`."""
    (until,) = connection.execute("SELECT until FROM recorded_until").fetchone() or (None,)
    records: list[dict[str, Any]] = []
    if until is not None:
        found = connection.execute("SELECT record FROM last_states WHERE record IS NOT NULL").fetchall()
        states = [state for (record,) in found if (state := readable_state(orjson.loads(record))) is not None]
        news = map(_news, connection.execute("SELECT * FROM session_news WHERE news IS NOT NULL").fetchall())
        incidents = ranked(states, news, epoch_ms(until.replace(tzinfo=UTC)))
        records = [one.record() | {"needed": one.state in NEEDED} for one in incidents]
    ((comment,),) = connection.execute(
        "SELECT coalesce(comment, '') FROM duckdb_views() WHERE view_name = 'incidents' LIMIT 1"
    ).fetchall()
    columns = {name: kind for name, kind, *_ in connection.execute("DESCRIBE incidents").fetchall()}
    told, shape = (quoted(orjson.dumps(one).decode()) for one in (records, [columns]))
    connection.execute(
        f"CREATE OR REPLACE VIEW incidents AS SELECT unnest(from_json('{told}', '{shape}'), recursive := true); "
        f"COMMENT ON VIEW incidents IS '{quoted(comment)}'"
    )


def _news(row: tuple[Any, ...]) -> SessionNews:
    """Decode a row of `session_news`."""
    session, workspace, news, patterns, asks, lost = row
    told = [readable_decision(orjson.loads(one)) for one in patterns or ()]
    return SessionNews(
        session,
        workspace,
        tuple(pattern_of(one) for one in told if isinstance(one, PatternDetected)),
        tuple(OpenAsk(**one) for one in asks or ()),
        tuple(lost or ()),
        epoch_ms(news.replace(tzinfo=UTC)),
    )
