"""Filtering and paging of a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .timeline import ItemKind, RepeatedCalls, TimelineDecision, TimelineEntry

PAGE_ITEMS = 200  # Number of items of a page


class TimelinePage(NamedTuple):
    """Page of a timeline."""

    items: tuple[TimelineEntry, ...]  # oldest first
    first: int  # index of its first item among all that match, from 0
    total: int  # number of items that match
    # older, newer: `upto` of the previous and the next page; None if there is none
    older: int | None
    newer: int | None
    missing: bool = False  # True if the requested item is not in the timeline


def part_of(
    items: Sequence[TimelineEntry],
    *,
    kinds: frozenset[ItemKind] = frozenset(),
    only_errors: bool = False,
    upto: int | None = None,
    at: str = "",
) -> TimelinePage:
    """Page of the items that match.

    Args:
        items: the whole timeline.
        kinds: only these kinds; empty: all.
        only_errors: only failures and decisions about faults.
        upto: index among the matching items at which the page ends, exclusive; None: at the end.
        at: id of an event or a decision that the page must contain, regardless of the filter.
    """
    matching = [
        item
        for item in items
        if ((not kinds or item.kind in kinds) and (item.failing or not only_errors)) or (at and holds(item, at))
    ]
    total = len(matching)
    place = next((number for number, item in enumerate(matching) if holds(item, at)), None) if at else None
    end = total if upto is None else max(0, min(upto, total))
    if place is not None:
        end = min(total, max(PAGE_ITEMS, place + PAGE_ITEMS // 2))
    first = max(0, end - PAGE_ITEMS)
    return TimelinePage(
        tuple(matching[first:end]),
        first,
        total,
        first or None,
        min(total, end + PAGE_ITEMS) if end < total else None,
        missing=bool(at) and place is None,
    )


def holds(item: TimelineEntry, id_: str) -> bool:
    """True if an item contains an event or a decision."""
    if item.id == id_:
        return True
    if isinstance(item.what, RepeatedCalls):
        return any(id_ in call.events for call in item.what.calls)
    return id_ in getattr(item.what, "events", ())


class NextItems(NamedTuple):
    """Ids of the next failure and the next decision after an item; empty if there is none."""

    failure: str
    decision: str


def ways_from(items: Sequence[TimelineEntry], shown: Iterable[TimelineEntry]) -> dict[str, NextItems]:
    """Links to the next failure and decision for each shown item, in the whole timeline."""
    wanted = {item.id for item in shown}
    found: dict[str, NextItems] = {}
    failure = decision = ""
    for item in reversed(items):
        if item.id in wanted:
            found[item.id] = NextItems(failure, decision)
        if isinstance(item.what, TimelineDecision):
            decision = item.id
        elif item.failing:
            failure = item.id
    return found
