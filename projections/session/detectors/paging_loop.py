"""Detector of a call that is repeated with growing numbers, page by page.

Examples are a file read line range by line range, and a list read page by page where one search would do. Other
detectors miss this, because each page gives a new result. Writes and other actions are left out, because repeating
them with growing numbers is regular work.
"""

from __future__ import annotations

import re
from operator import le

import msgspec

from ....schemas.vocabulary import Pattern, ToolClass
from ...calls.fingerprints import canonical, digest
from ...calls.keys import is_shell
from ...emitter import MAX_CAUSES
from ..calls import Args, distinguishing_args
from ..records import ActivePattern, Context, OpenCall, Sighting
from .detector import Detector

MAX_PAGINGS = 4
"""Maximum number of page series tracked at a time; reads of several files may be interleaved."""

MAX_TEXT_CHARS = 512
"""Calls with a longer argument are ignored: they carry content and do not request a page. Characters."""

MAX_DIGITS = 15
_LARGEST: int = 10**MAX_DIGITS
_ALONE = re.compile(r"\d(?<![\w.]\d)\d{0,14}(?:(?![\w.])|(?=p\b))")
"""A separate number, or one before a `p` as in sed. The look-behind comes after the first digit, which is faster."""

_PAGED = frozenset({ToolClass.READ, ToolClass.UNKNOWN})


class Paging(msgspec.Struct, array_like=True):
    """A series of calls that differ only in growing numbers.

    Attributes:
        shape: fingerprint of the call without its numbers.
        numbers: the numbers of the latest call, sorted by argument name.
        since_ms: start of the first call of the series, milliseconds.
    """

    shape: int
    numbers: list[int]
    tool_name: str
    event_ids: list[str]
    count: int = 1
    since_ms: int = 0


class PagingLoop(Detector, array_like=True):
    """Detector that tracks up to MAX_PAGINGS page series; other calls may come between the pages.

    Attributes:
        series: the tracked series, least recently used first.
    """

    pattern = Pattern.PAGING_LOOP
    ends_with = "progress, or any other number"
    texts = (
        "You've paged through {tool_name} {count} times. A search, or a larger piece at once, may get you there sooner.",
        "NOTICE: {count} pages read with {tool_name}, one after the other. Search for what you need, or act on what you have read.",
        "PAUSED: {tool_name} was paged through {count} times. The session waits for the user.",
    )
    reported = 3
    wants_action = True
    ended_by_progress = outgrown = True

    series: list[Paging] = []

    def is_over(self, active: ActivePattern, ctx: Context) -> bool:
        """Whether no series of this shape reaches a step of the ladder any more."""
        ladder = ctx.rules.behaviour.paging_loop
        return all(page.shape != active.fingerprint or not ladder.step(page.count) for page in self.series)

    def on_call(self, call: OpenCall, args: Args, ctx: Context) -> None:
        """Count a page if the call continues a series; other numbers restart the series."""
        if call.tool_class not in _PAGED or not args:
            return
        shell = is_shell(call.tool_name)
        if shell and call.tool_class is ToolClass.UNKNOWN:
            return
        if ctx.rules.tools.volatile_args:
            args = distinguishing_args(call.tool_name, args, ctx.rules)
        shape, numbers = _shape(call.tool_name, args, shell=shell)
        if numbers:
            known = self._paged(call, shape, numbers, ctx.emit.cause)
            severity = ctx.rules.behaviour.paging_loop.step(known.count) if known is not None else 0
            if severity and known is not None:
                seen = Sighting(
                    self.pattern, severity, shape, known.count, [call.tool_name] * min(known.count, MAX_CAUSES),
                    known.event_ids, "search, or read larger pieces", since_ms=known.since_ms,
                )  # fmt: skip
                ctx.sightings.append(seen)

    def _paged(self, call: OpenCall, shape: int, numbers: list[int], event_id: str) -> Paging | None:
        """Series that the call continues; None if the call starts or restarts one."""
        series = self.series
        known = next((page for page in series if page.shape == shape), None)
        if known is None:
            series.append(Paging(shape, numbers, call.tool_name, [event_id], since_ms=call.started_ms))
            del series[:-MAX_PAGINGS]
            return None
        grown = _have_grown(known.numbers, numbers)
        known.numbers = numbers
        series.remove(known)
        series.append(known)
        if not grown:
            known.count, known.event_ids, known.since_ms = 1, [event_id], call.started_ms
            return None
        known.count += 1
        known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], event_id]
        return known

    def on_progress(self) -> None:
        """Clear all series."""
        self.series = []


def _shape(tool_name: str, args: Args, *, shell: bool) -> tuple[int, list[int]]:
    """Fingerprint of a call without its numbers, and the numbers sorted by argument name.

    A number is an integer argument, a text of digits, the first item of a list of integers (`view_range`), or the first
    separate number in a shell command (`sed -n 1,200p`). Returns (0, []) if there is none or an argument is too long.
    """
    numbers: dict[str, int] = {}
    masked: Args = {}
    for name, value in args.items():
        if type(value) is int:
            numbers[name], masked[name] = value, "#"
        elif type(value) is str:
            if len(value) > MAX_TEXT_CHARS:
                return 0, []
            if value[:1].isdigit() and len(value) <= MAX_DIGITS and value.isascii() and value.isdigit():
                numbers[name], masked[name] = int(value), "#"
            elif shell and (found := _ALONE.search(value)) is not None:
                numbers[name], masked[name] = int(found.group()), _ALONE.sub("#", value)
        elif isinstance(value, list) and value and all(type(one) is int for one in value):
            numbers[name], masked[name] = value[0], "#"
    if not numbers:
        return 0, []
    mark = digest(tool_name.encode() + b"\x00" + canonical(args | masked))
    return mark, [_within(numbers[name]) for name in sorted(numbers)]


def _within(number: int) -> int:
    """The number clamped to the range that a snapshot can hold."""
    return max(-_LARGEST, min(number, _LARGEST))


def _have_grown(before: list[int], after: list[int]) -> bool:
    """Whether at least one number has grown and none has shrunk; `start` and `end` of a range grow together."""
    return before != after and len(before) == len(after) and all(map(le, before, after))
