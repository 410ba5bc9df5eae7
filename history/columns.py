"""Rows as typed dictionaries, and their columns as DuckDB types: one declaration for both.

A row is written as a line of JSON and read by DuckDB with the types given here, so nothing is guessed from the data.
A missing field, or None, is NULL. Rows are dictionaries, not structs, because a record fills about a dozen of some
fifty columns: a struct would set and encode them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypedDict, get_args, get_origin, get_type_hints

EpochMs = Annotated[int, "milliseconds since the epoch"]  # A time; in files with its zone, UTC, in queries a TIMESTAMP

# 2100-01-01 in milliseconds. A later time is assumed to have the wrong unit (nanoseconds, for example).
END_MS = 4_102_444_800_000

_TYPES: dict[Any, str] = {int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN", str: "VARCHAR", tuple: "VARCHAR[]"}


class RecordedRow(TypedDict, total=False):
    """Columns common to all recorded records."""

    partition: int  # partition of the record
    offset: int  # offset in that partition
    arrived: EpochMs | None  # when the broker or the engine accepted it; absent if unknown
    key: str | None  # record key
    id: str | None
    type: str | None
    time: EpochMs | None
    session_id: str | None
    workspace_id: str | None
    user_id: str | None
    fault: str | None  # reason code if the record could not be read; then only its position and size are kept
    size: int | None  # bytes of the record's value
    # the record as JSON without its results; absent for a tombstone. Of an event, what has no column.
    record: str | None


def columns_of(kind: type[RecordedRow], more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Column names of a row, and `more` ones, with their DuckDB types, in order; `record`, the longest, is last."""
    columns = {name: _type_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    record = columns.pop("record")
    return {**columns, **more, "record": record}


def _type_of(hint: Any) -> str:
    if hint is EpochMs:
        return "TIMESTAMP"
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    options = [option for option in get_args(hint) if option is not type(None)]
    if options and get_origin(hint) is not tuple:
        return _type_of(options[0])
    return _TYPES[get_origin(hint) or hint]
