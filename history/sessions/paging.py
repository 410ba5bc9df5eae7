"""The part of a timeline that is asked for: filtered, a page of it, with the ways to the other parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .timeline import Decision, Item, Kind, Repeats

PAGE_ITEMS = 200
"""Items of a page: the latest first of all, older ones on demand."""


class Part(NamedTuple):
    """A page of a timeline.

    Attributes:
        items: oldest first.
        first: place of the first of them among all that match, from 0.
        total: how many match.
        older, newer: the `upto` of the page before and after; None where there is none.
        missing: the item asked for is not in the timeline.
    """

    items: tuple[Item, ...]
    first: int
    total: int
    older: int | None
    newer: int | None
    missing: bool = False


def part_of(
    items: Sequence[Item],
    *,
    kinds: frozenset[Kind] = frozenset(),
    only_errors: bool = False,
    upto: int | None = None,
    at: str = "",
) -> Part:
    """A page of the items that match.

    Args:
        items: the whole timeline.
        kinds: only these; empty: all.
        only_errors: only failures and decisions that something went wrong.
        upto: the page ends in front of this place among those that match; None: at the end.
        at: id of an event or a decision that the page must hold, whatever the filter says.
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
    return Part(
        tuple(matching[first:end]),
        first,
        total,
        first or None,
        min(total, end + PAGE_ITEMS) if end < total else None,
        missing=bool(at) and place is None,
    )


def holds(item: Item, id_: str) -> bool:
    """Whether an event or a decision is told by an item."""
    if item.id == id_:
        return True
    if isinstance(item.what, Repeats):
        return any(id_ in call.events for call in item.what.calls)
    return id_ in getattr(item.what, "events", ())


class Ways(NamedTuple):
    """Ids of the next items after one, empty where there is none: the next failure, the next decision."""

    failure: str
    decision: str


def ways_from(items: Sequence[Item], shown: Iterable[Item]) -> dict[str, Ways]:
    """The ways on from each item that is shown, in the whole timeline."""
    wanted = {item.id for item in shown}
    found: dict[str, Ways] = {}
    failure = decision = ""
    for item in reversed(items):
        if item.id in wanted:
            found[item.id] = Ways(failure, decision)
        if isinstance(item.what, Decision):
            decision = item.id
        elif item.failing:
            failure = item.id
    return found
