"""The events to measure with: recorded runs of real agents where they lie, generated ones elsewhere."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
from bench_generated import generate
from bench_result import CannotMeasure

SEED = 7


class Told(NamedTuple):
    """One event, with the session that is its key."""

    session: str
    value: bytes


class Source(NamedTuple):
    """Events of one origin, in the order of the recording."""

    name: str
    events: list[Told]


def sources(folder: Path) -> list[Source]:
    """Every recorded trace of the folder; where there is none, one source of generated events.

    Raises:
        CannotMeasure: a file is not what it should be.
    """
    files = sorted(folder.glob("*.ndjson.gz")) if folder.is_dir() else []
    if not files:
        return [Source("generated", [_told(value) for value in generate()])]
    try:
        return [Source(path.name.removesuffix(".ndjson.gz"), [*map(_told, _lines(path))]) for path in files]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise CannotMeasure(f"the traces in {folder} cannot be read ({error!r}); replace or remove them") from error


def said_of(found: list[Source]) -> str:
    """In a few words, which events these are."""
    total = sum(len(source.events) for source in found)
    if [source.name for source in found] == ["generated"]:
        return f"{total:,} generated events (no recorded traces here; TRUSTFOLD_TRACES names their folder)"
    return f"{total:,} recorded events of {len(found)} traces"


def pick(found: list[Source], count: int) -> list[Told]:
    """About `count` events in whole sessions, the same share of each source, in the recorded order.

    Asked for more than there are, it tells them again as sessions and workspaces of other names.
    """
    everything = [event for source in found for event in source.events]
    copies, rest = divmod(count, len(everything))
    picked = [event for copy in range(copies) for event in _renamed(everything, copy)]
    if rest:
        shares = [_sessions(source.events, rest / len(everything)) for source in found]
        picked += [event for share in shares for event in _renamed(share, copies)]
    if not picked:
        raise CannotMeasure(f"{count} events are less than any whole session has; ask for more")
    return picked


def interleave(events: Iterable[Told], live: int) -> list[Told]:
    """The same sessions, `live` of them at a time, each telling one event in turn."""
    by_session: dict[str, list[Told]] = {}
    for event in events:
        by_session.setdefault(event.session, []).append(event)
    waiting = iter([iter(told) for told in by_session.values()])
    at_once: list[Iterator[Told]] = [told for told, _ in zip(waiting, range(live), strict=False)]
    order: list[Told] = []
    while at_once:
        going: list[Iterator[Told]] = []
        for told in at_once:
            current: Iterator[Told] | None = told
            while current is not None:
                told_now = next(current, None)
                if told_now is not None:
                    order.append(told_now)
                    going.append(current)
                    break
                current = next(waiting, None)
        at_once = going
    return order


def _sessions(events: list[Told], share: float) -> list[Told]:
    names = list(dict.fromkeys(event.session for event in events))
    random.Random(SEED).shuffle(names)
    sizes: dict[str, int] = {}
    for event in events:
        sizes[event.session] = sizes.get(event.session, 0) + 1
    wanted, kept = share * len(events), set[str]()
    for name in names:
        if wanted < sizes[name] / 2:
            continue
        kept.add(name)
        wanted -= sizes[name]
    return [event for event in events if event.session in kept]


def _renamed(events: list[Told], copy: int) -> Iterator[Told]:
    if not copy:
        yield from events
        return
    for event in events:
        document = orjson.loads(event.value)
        document["session_id"] = f"{event.session}~{copy}"
        document["workspace_id"] = f"{document.get('workspace_id') or 'default'}~{copy}"
        yield Told(document["session_id"], orjson.dumps(document))


def _lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path) as lines:
        for line in lines:
            if value := line.strip():
                yield value


def _told(value: bytes) -> Told:
    return Told(orjson.loads(value)["session_id"], value)
