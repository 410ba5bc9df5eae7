"""Field types of events, commands and settings, with their bounds (docs/design/contracts.md#bad-input)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, get_args, get_type_hints

from msgspec import Meta, Struct

MAX_NAME = 256
"""Longest id or name, in characters."""

MAX_SPAN_MS = 31_622_400_000
"""Longest duration or deadline: 366 days, in milliseconds."""

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, extra_json_schema={"pattern": "^[^\\x00\\x1f]+$"})]
"""An id or a name: 1 to 256 characters, neither U+0000 nor U+001F (which joins the parts of keys)."""

Time = Annotated[datetime, Meta(tz=True)]
"""RFC 3339 with an offset, from 2000-01-01 up to 2100-01-01; fractions of a millisecond are cut off."""

Version = Annotated[str, Meta(extra_json_schema={"pattern": "^1(\\.[0-9]+){0,2}$"})]
"""`1.x`: any minor version is read, another major version is rejected."""

LARGEST_COUNT = 2**53
"""Largest count: 2^53, which every JSON parser keeps exactly."""

Count = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
"""Whole number that every JSON parser keeps exactly."""

SpanMs = Annotated[float, Meta(ge=0, le=MAX_SPAN_MS)]
"""Milliseconds."""

SpanSeconds = Annotated[float, Meta(ge=0, le=MAX_SPAN_MS / 1000)]
"""Seconds."""

Money = Annotated[float, Meta(ge=0, le=1e12)]
"""US dollars."""

Ratio = Annotated[float, Meta(ge=0, le=1)]
"""Share or score, 0 to 1."""

Depth = Annotated[int, Meta(ge=0, le=1_000_000)]
"""Nesting depth of calls."""

HttpStatus = Annotated[int, Meta(ge=0, le=999)]
"""Status code of an HTTP answer; 0 when there was none."""

DeadlineMs = Annotated[int, Meta(ge=0, le=MAX_SPAN_MS)]
"""Milliseconds from the start; 0 is the default deadline."""

ShortText = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
"""Name that is never part of a key: 1 to 256 characters of any kind."""

Approvals = Annotated[tuple[Name, ...], Meta(max_length=16)]
"""Ids of approvals: a call needs at most those of its own key, its tool and its service."""

ModelNames = Annotated[tuple[ShortText, ...], Meta(max_length=256)]
"""Names of models, at most 256."""

LongName = Annotated[str, Meta(min_length=1, max_length=1024, extra_json_schema={"pattern": "^[^\\x00\\x1f]+$"})]
"""A key made of a name and parameters: 1 to 1024 characters."""

Scope = Annotated[str, Meta(max_length=MAX_NAME + 16, pattern="^(user|workspace):[^\\x00\\x1f]+$")]
"""Owner of settings: `user:ID` or `workspace:ID`."""


def names_of(kind: type[Struct]) -> tuple[str, ...]:
    """Return the fields of a struct that are ids or names."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        field
        for field in kind.__struct_fields__
        if not {Name, LongName}.isdisjoint((hints[field], *get_args(hints[field])))
    )
