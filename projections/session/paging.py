"""Detector of paging: the same call again and again with one argument that grows (docs/detection.md).

Each page brings news, so nothing else sees it: a file read line range by line range, a list walked page by page where
one search would do. Writes and other actions are left out: the tenth issue created is the tenth issue.
"""

from __future__ import annotations

import re
from operator import le

from ...rules.rules import BehaviourRules
from ...schemas.vocabulary import Pattern, ToolClass
from ..calls.fingerprints import canonical, digest
from ..calls.keys import is_shell
from ..emit import MAX_CAUSES
from .calls import Args
from .patterns import Sighting
from .state import MAX_PAGINGS, OpenCall, Paging, SessionState

MAX_TEXT_CHARS = 512
"""Calls with a longer argument carry content; pages are asked for in few words."""

MAX_DIGITS = 15
_LARGEST: int = 10**MAX_DIGITS
_ALONE = re.compile(r"\d(?<![\w.]\d)\d{0,14}(?:(?![\w.])|(?=p\b))")
"""A number that stands alone, or before a `p` as in sed. It begins with a digit and looks back then: found fast."""

_PAGED = frozenset({ToolClass.READ, ToolClass.UNKNOWN})


def paging_loop(
    state: SessionState, event_id: str, call: OpenCall, args: Args, rules: BehaviourRules
) -> Sighting | None:
    """The same call with one argument growing steadily; other calls may lie between, progress and the user end it."""
    if call.tool_class not in _PAGED or not args:
        return None
    shell = is_shell(call.tool_name)
    if shell and call.tool_class is ToolClass.UNKNOWN:
        return None
    shape, numbers = _shape(call.tool_name, args, shell=shell)
    if not numbers:
        return None
    pages = state.paging
    known = next((page for page in pages if page.shape == shape), None)
    if known is None:
        pages.append(Paging(shape, numbers, call.tool_name, [event_id], since_ms=call.started_ms))
        del pages[:-MAX_PAGINGS]
        return None
    grown = _have_grown(known.numbers, numbers)
    known.numbers = numbers
    pages.remove(known)
    pages.append(known)  # the latest series last: the one unused longest goes first
    if not grown:
        known.count, known.event_ids, known.since_ms = 1, [event_id], call.started_ms
        return None
    known.count += 1
    known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], event_id]
    severity = rules.paging_loop.step(known.count)
    if not severity:
        return None
    return Sighting(
        Pattern.PAGING_LOOP, severity, shape, known.count,
        [call.tool_name] * min(known.count, MAX_CAUSES), known.event_ids, "search, or read larger pieces",
        since_ms=known.since_ms,
    )  # fmt: skip


def _shape(tool_name: str, args: Args, *, shell: bool) -> tuple[int, list[int]]:
    """Fingerprint of a call without its numbers, and the numbers in the order of their names.

    A number is an argument, text that is one, a list of numbers (`view_range`: its first), or, in a shell's command,
    one that stands alone (`sed -n 1,200p`: its first).
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
    """A number that a snapshot can hold."""
    return max(-_LARGEST, min(number, _LARGEST))


def _have_grown(before: list[int], after: list[int]) -> bool:
    """Whether some numbers have grown and the others stayed: `start` and `end` of a range grow together."""
    return before != after and len(before) == len(after) and all(map(le, before, after))
