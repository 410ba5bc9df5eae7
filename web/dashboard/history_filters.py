"""What of the history a page shows: time, workspaces, tools, models and sessions of its query string."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from starlette.datastructures import QueryParams

from ...errors import ConfigError
from ...history.filters import Filters, moment_of, span_of

DEFAULT_SPAN = "7d"
EVERYTHING = "all"
"""Value of `since` for no beginning."""

PRESETS = (
    ("1h", "last hour"),
    ("24h", "last 24 hours"),
    ("7d", "last 7 days"),
    ("30d", "last 30 days"),
    (EVERYTHING, "everything"),
)
NAMES = ("workspace", "tool", "model", "session")

_FINEST = timedelta(minutes=1)
_GRID = [timedelta(minutes=minutes) for minutes in (1, 5, 15, 30, 60, 180, 1440)]
"""Steps at which spans back from now begin."""


class Narrowing(NamedTuple):
    """What a page shows.

    Attributes:
        filters: what of the history.
        since, until: as they stand in the query string; `since` is a span back from now, a time, or `all`.
        end: where the shown time ends: `until`, else now.
        fault: what is wrong in the query string, in words; then the filters are those of no query string.
    """

    filters: Filters
    since: str
    until: str
    end: datetime
    fault: str = ""

    @classmethod
    def of(cls, query: QueryParams, now: datetime) -> Narrowing:
        """Read a query string."""
        since, until = query.get("since", "").strip() or DEFAULT_SPAN, query.get("until", "").strip()
        names = [tuple(one for one in dict.fromkeys(query.getlist(name)) if one) for name in NAMES]
        try:
            end = moment_of(until, now, option="until")
            begin = None if since == EVERYTHING else _begin(since, now)
            fault = ""
        except ConfigError as wrong:
            begin, end, fault = None, None, str(wrong)
        if begin and begin >= (end or now):
            fault = f"since {since} is not before {'until ' + until if until else 'now'}"
        if fault:
            return cls(Filters(_begin(DEFAULT_SPAN, now), None, *names), DEFAULT_SPAN, "", now, fault)
        return cls(Filters(begin, end, *names), since, until, end or now)

    @property
    def named(self) -> Mapping[str, Sequence[str]]:
        """Names that the page is narrowed to, by parameter."""
        return dict(zip(NAMES, self.filters[2:], strict=True))

    @property
    def narrowed(self) -> bool:
        """Whether more than a time is filtered."""
        return any(self.filters[2:])

    @property
    def words(self) -> str:
        """The filters as people say them."""
        begin, end = self.filters.since, self.filters.until
        told = dict(PRESETS).get(self.since) if end is None else None
        if told is None:
            told = f"{_shown(begin) if begin else 'the beginning'} to {_shown(end) if end else 'now'} UTC"
        listed = [f"{name} {' or '.join(values)}" for name, values in self.named.items() if values]
        return ", ".join([told, *listed])

    @property
    def before(self) -> Filters | None:
        """The same of as long before; None where the time has no beginning, or where that is before all time."""
        if self.filters.since is None:
            return None
        try:
            return self.filters._replace(since=self.filters.since - self.length, until=self.filters.since)
        except OverflowError:
            return None

    @property
    def length(self) -> timedelta:
        """Length of the shown time; a day where it has no beginning."""
        if self.filters.since is None:
            return timedelta(days=1)
        if self.filters.until:
            return self.filters.until - self.filters.since
        return span_of(self.since) or max((self.end - self.filters.since) // _FINEST * _FINEST, _FINEST)

    def changes(self, steps: int) -> dict[str, str] | None:
        """Parameters of the time so many periods later; None where it has no beginning, or where that is the future."""
        begin = self.filters.since
        if begin is None or (steps > 0 and self.filters.until is None):
            return None
        move = steps * self.length
        try:
            return {"since": _rfc3339(begin + move), "until": _rfc3339(self.end + move)}
        except OverflowError:
            return None

    def fixed(self) -> dict[str, str]:
        """Parameters of this time with fixed bounds."""
        return self.changes(0) or {"since": self.since, "until": _rfc3339(self.end)}

    def carried(self, *without: str) -> QueryParams:
        """Parameters that lead to another page with the same filters, but those named."""
        times = [("since", self.since if self.since != DEFAULT_SPAN else ""), ("until", self.until)]
        every = times + [(name, value) for name, values in self.named.items() for value in values]
        return QueryParams([(name, value) for name, value in every if value and name not in without])


def bucket_of(length: timedelta) -> timedelta:
    """Span of time that one point of a plot stands for, so that there are at most about a hundred."""
    steps = (60, 300, 900, 3600, 10_800, 21_600, 86_400, 604_800)
    return timedelta(seconds=next((step for step in steps if length / timedelta(seconds=step) <= 100), steps[-1]))


def _begin(since: str, now: datetime) -> datetime | None:
    """Where a time begins: a span back from now ends at a whole step, so that who asks again asks for the same."""
    begin = moment_of(since, now, option="since")
    span = span_of(since)
    if span is None or begin is None:
        return begin
    step = max((one for one in _GRID if one <= span / 300), default=_FINEST)
    zero = datetime(2020, 1, 1, tzinfo=UTC)
    return zero + (begin - zero) // step * step


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


def _rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
