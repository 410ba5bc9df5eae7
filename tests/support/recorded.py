"""Histories for tests: what a story or a trace leaves when it is recorded."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import duckdb
import orjson
import pytest
from fixed_rules import Rules
from story import Story
from trustfold.history.catalogue import connect
from trustfold.history.event_rows import WHOLE, EventReader
from trustfold.history.files import APPENDED_PARTITION, data_files
from trustfold.history.filters import EVERYTHING, HistoryFilters
from trustfold.history.recorder import PartitionRecorder
from trustfold.projections.emitter import StageOutput, is_record_of_call
from trustfold.projections.local_topology import LocalTopology

TRACES = Path(os.environ.get("TRUSTFOLD_TRACES", Path(__file__).parents[2] / ".." / "shared" / "traces"))
TRACE_NAMES = (
    "agentv_copilot",
    "cipherbox_claude_code",
    "entire_claude_code",
    "intercode",
    "openhands_maverick",
    "pi_sessions",
    "tau_airline_gpt4o",
)
ARRIVED = 1_767_607_200_000
"""2026-01-05T10:00Z, when records of tests arrive unless told otherwise."""

DAY_MS = 86_400_000

NOT_RECORDED = frozenset({"outcomes", "standings", "events"})


def small_event(number: int, **fields: Any) -> bytes:
    """A small event whose id is its number."""
    body = {
        "schema_version": "1.0",
        "id": f"e{number}",
        "type": "user.message",
        "time": "2026-01-05T10:00:00Z",
        "session_id": "s1",
    }
    return orjson.dumps(body | fields)


def lines_of(trace: str) -> list[bytes]:
    """Events of a recorded run; skips the test where it is not here."""
    path = TRACES / f"{trace}.ndjson.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here; set TRUSTFOLD_TRACES to the folder of recorded runs")
    return gzip.decompress(path.read_bytes()).splitlines()


def replayed(records: Iterable[tuple[str, bytes]], rules: Rules | None = None) -> Iterator[StageOutput]:
    """Everything the folds write for records, with the tick at the end."""
    topology = LocalTopology(rules or Rules())
    for topic, value in records:
        yield from topology.feed(topic, (value,))
    yield from topology.tick(topology.stream_time)


def record(
    root: Path,
    records: Iterable[tuple[str, bytes]],
    *,
    rules: Rules | None = None,
    decisions: bool = True,
    arrived_ms: int = -1,
    live: bool = False,
    delay_ms: Callable[[bytes], int] = lambda _: 0,
) -> None:
    """Record inputs and what they cause, as the embedded engine would; `live`: `delay_ms` after each happened."""
    recorder = PartitionRecorder(root)
    for topic in ("events", "commands", "escalations", "breakers", "nudges", "suggestions", "state", "dead-letters"):
        recorder.own(topic, 0)
    kept = list(records)
    for offset, (topic, value) in enumerate(kept):
        recorder.add(topic, 0, offset, _happened_ms(value) + delay_ms(value) if live else arrived_ms, None, value)
    recorder.own("outcomes", APPENDED_PARTITION)
    outputs = (output for output in replayed(kept, rules) if is_recorded(output, decisions=decisions))
    for offset, output in enumerate(outputs):
        arrived = output.time_ms + delay_ms(output.value or b"{}") if live else arrived_ms
        partition = APPENDED_PARTITION if output.topic == "outcomes" else 0
        recorder.add(output.topic, partition, offset, arrived, output.key.encode(), output.value)
    recorder.flush()
    recorder.close()


def is_recorded(output: StageOutput, *, decisions: bool = True) -> bool:
    """Whether the embedded engine's history has an output; records of calls always."""
    return is_record_of_call(output) or (decisions and output.topic not in NOT_RECORDED)


_READ = """SELECT {whole} FROM (SELECT * REPLACE (make_timestamp_ms(time) AS time) FROM read_json(
    '{file}', format = 'newline_delimited', maximum_object_size = 67108864, columns = {{type: 'VARCHAR', id: 'VARCHAR',
    session_id: 'VARCHAR', time: 'BIGINT', call_id: 'VARCHAR', message_id: 'VARCHAR', workspace_digest: 'VARCHAR',
    record: 'VARCHAR'}})) WHERE record IS NOT NULL"""


def stored(values: list[bytes]) -> list[bytes]:
    """What the history keeps of events."""
    reader = EventReader(b"key")
    rows = [reader.row(0, offset, -1, None, value) for offset, value in enumerate(values)]
    with NamedTemporaryFile() as file, duckdb.connect() as connection:
        file.write(b"\n".join(orjson.dumps(row) for row in rows))
        file.flush()
        found = connection.execute(_READ.format(whole=WHOLE, file=file.name)).fetchall()
    return [text.encode() for (text,) in found]


def calls_in(records: Iterable[tuple[str, bytes]]) -> list[bytes]:
    """Records of the calls in some records, in the order of their ends."""
    return [output.value for output in replayed(records) if is_record_of_call(output) and output.value is not None]


def without_zone(file: Path) -> str:
    """Query of the rows of a file as older recorders wrote them: its times have no zone."""
    rows = f"FROM read_parquet('{file}')"
    with duckdb.connect() as connection:
        zoned = [name for name, kind, *_ in connection.execute(f"DESCRIBE {rows}").fetchall() if "TIME ZONE" in kind]
    return f"SELECT * REPLACE ({', '.join(f'make_timestamp(epoch_us({name})) AS {name}' for name in zoned)}) {rows}"


def as_older_files(root: Path) -> None:
    """Rewrite a history as recorders wrote it that judged calls themselves: on the rows of events."""
    judged = (
        "fine_key AS failure_key, tool_class, call_digest, started, verdict, severity, denied, expected, duration_ms, "
        "attempts, error_type, error_code, http_status, signature, result_digest, same_result, result_size, cost_usd"
    )
    older = []
    with connect(root) as connection:
        calls = f"SELECT cause, {judged} FROM recorded_outcomes WHERE outcome IS NOT NULL"
        for file in data_files(root, "events"):
            made = file.path.with_suffix(".older")
            own = f"SELECT * REPLACE ({WHOLE} AS record) FROM ({without_zone(file.path)})"
            rows = f"SELECT f.*, c.* EXCLUDE (cause) FROM ({own}) f LEFT JOIN ({calls}) c ON cause = f.id"
            connection.execute(f"COPY ({rows} ORDER BY \"offset\") TO '{made}' (FORMAT parquet)")
            older.append((made, file.path))
    for made, path in older:
        made.rename(path)
    for file in data_files(root, "outcomes"):
        file.path.unlink()


def _happened_ms(value: bytes) -> int:
    return int(datetime.fromisoformat(orjson.loads(value)["time"]).timestamp() * 1000)


def told(root: Path, story: Story, **options: Any) -> None:
    """Record a story."""
    record(root, story.records, **options)


def rows(root: Path, query: str, *arguments: Any, filters: HistoryFilters = EVERYTHING) -> list[tuple[Any, ...]]:
    """Answer of the catalogue."""
    with connect(root, threads=2, filters=filters, query=query) as connection:
        return connection.execute(query, list(arguments)).fetchall()


def one(root: Path, query: str, *arguments: Any) -> dict[str, Any]:
    """The only row of an answer, by column name."""
    with connect(root, threads=2, query=query) as connection:
        cursor = connection.execute(query, list(arguments))
        names = [column[0] for column in cursor.description]
        found = cursor.fetchall()
    assert len(found) == 1, found
    return dict(zip(names, found[0], strict=True))
