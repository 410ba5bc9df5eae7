"""Time range and filters of a page's query string: workspaces, tools, models and sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from starlette.datastructures import QueryParams

from ...errors import ConfigError
from ...history.filters import HistoryFilters, moment_of, span_of

DEFAULT_SPAN = "7d"
EVERYTHING = "all"  # Value of `since` for an unlimited start

PRESETS = (
    ("1h", "last hour"),
    ("24h", "last 24 hours"),
    ("7d", "last 7 days"),
    ("30d", "last 30 days"),
    (EVERYTHING, "everything"),
)
NAMES = ("workspace", "tool", "model", "session")

_FINEST = timedelta(minutes=1)
# Steps that the start of a relative span is rounded to
_GRID = [timedelta(minutes=minutes) for minutes in (1, 5, 15, 30, 60, 180, 1440)]


class PageFilters(NamedTuple):
    """Time range and filters of a page."""

    filters: HistoryFilters  # filters on the history
    # since, until: values in the query string; `since` is a span back from now, a time, or `all`
    since: str
    until: str
    end: datetime  # end of the shown time: `until`, else now
    fault: str = ""  # error in the query string, as text; the default filters then apply

    @classmethod
    def of(cls, query: QueryParams, now: datetime) -> PageFilters:
        """Parse a query string."""
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
            return cls(HistoryFilters(_begin(DEFAULT_SPAN, now), None, *names), DEFAULT_SPAN, "", now, fault)
        return cls(HistoryFilters(begin, end, *names), since, until, end or now)

    @property
    def named(self) -> Mapping[str, Sequence[str]]:
        """Names in the filters, by parameter."""
        return dict(zip(NAMES, self.filters[2:], strict=True))

    @property
    def narrowed(self) -> bool:
        """True if there are filters other than time."""
        return any(self.filters[2:])

    @property
    def words(self) -> str:
        """Description of the filters."""
        begin, end = self.filters.since, self.filters.until
        told = dict(PRESETS).get(self.since) if end is None else None
        if told is None:
            told = f"{_shown(begin) if begin else 'the beginning'} to {_shown(end) if end else 'now'} UTC"
        listed = [f"{name} {' or '.join(values)}" for name, values in self.named.items() if values]
        return ", ".join([told, *listed])

    @property
    def before(self) -> HistoryFilters | None:
        """The same for the preceding period; None if the start is unlimited or out of range."""
        if self.filters.since is None:
            return None
        try:
            return self.filters._replace(since=self.filters.since - self.length, until=self.filters.since)
        except OverflowError:
            return None

    @property
    def length(self) -> timedelta:
        """Length of the shown time; a day if the start is unlimited."""
        if self.filters.since is None:
            return timedelta(days=1)
        if self.filters.until:
            return self.filters.until - self.filters.since
        return span_of(self.since) or max((self.end - self.filters.since) // _FINEST * _FINEST, _FINEST)

    def changes(self, steps: int) -> dict[str, str] | None:
        """Parameters of the time range shifted by a number of periods; None if unlimited, or in the future."""
        begin = self.filters.since
        if begin is None or (steps > 0 and self.filters.until is None):
            return None
        move = steps * self.length
        try:
            return {"since": _rfc3339(begin + move), "until": _rfc3339(self.end + move)}
        except OverflowError:
            return None

    def fixed(self) -> dict[str, str]:
        """Parameters of this time range with fixed bounds."""
        return self.changes(0) or {"since": self.since, "until": _rfc3339(self.end)}

    def carried(self, *without: str) -> QueryParams:
        """Parameters for a link to another page with the same filters, except the given ones."""
        times = [("since", self.since if self.since != DEFAULT_SPAN else ""), ("until", self.until)]
        every = times + [(name, value) for name, values in self.named.items() for value in values]
        return QueryParams([(name, value) for name, value in every if value and name not in without])


def bucket_of(length: timedelta) -> timedelta:
    """Duration of one point of a plot, so that there are at most about a hundred points."""
    steps = (60, 300, 900, 3600, 10_800, 21_600, 86_400, 604_800)
    return timedelta(seconds=next((step for step in steps if length / timedelta(seconds=step) <= 100), steps[-1]))


def _begin(since: str, now: datetime) -> datetime | None:
    """Start of a time range; the start of a relative span is rounded to a step, so that repeated requests are equal."""
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
