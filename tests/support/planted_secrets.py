"""Events of a publisher that is no guard, with secrets planted in every field, and a search for them in the results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from secret_kinds import FEW
from trustfold.schemas.examples import EXAMPLES

EVENTS = {
    kind: fields
    for kind, fields in EXAMPLES.items()
    if kind.partition(".")[0]
    in "session turn tool_call user model permission failure success feedback synthesis".split()
    and "caused_by" not in fields
}

CLOSED = frozenset("type time schema_version severity status settings strategy results limits".split())
"""Fields that the contract checks: an event with other values is a dead letter."""


def planted(value: Any, text: str) -> Any:
    """A value with a secret in every text."""
    if isinstance(value, dict):
        return {name: planted(inner, text) for name, inner in value.items()}
    return [planted(inner, text) for inner in value] if isinstance(value, list) else text


def events_with(text: str, number: int, *, every: int = 1) -> Iterator[bytes]:
    """Every type of event with a secret in every field, and in one field at a time of what is else a good event.

    `every`: take single fields of one type in so many only, another one for each kind (`number`).
    """
    for place, example in enumerate(EVENTS.values()):
        texts = {name: inner for name, inner in example.items() if not isinstance(inner, bool | int | float)}
        whole = example | {name: planted(inner, text) for name, inner in texts.items() if name not in CLOSED}
        yield orjson.dumps(whole | {"id": f"{number}-{place} {text}"[:256]})
        for field in example if (number + place) % every == 0 else ():  # some are refused, and become dead letters
            yield orjson.dumps(example | {"id": f"{number}-{place}-{field}", field: planted(example[field], text)})
        yield orjson.dumps(whole)[:-1]  # broken off
    base = EVENTS["tool_call.finished"]
    for place, result in enumerate(
        (text, {"output": text}, {"content": [{"text": f"got {text}"}]}, {"password": text})
    ):
        yield orjson.dumps(base | {"id": f"{number}-r{place}", "result": result, "call_id": f"c{number}-{place}"})


def lines_of_all_kinds(every: int) -> list[bytes]:
    """Events with every kind; `every` as in `events_with`."""
    return [line for number, (text, _) in enumerate(FEW.values()) for line in events_with(text, number, every=every)]


def found_in(everything: bytes) -> dict[str, bytes]:
    """Kinds whose secret stands in something, each with what stands around it."""
    texts = everything + everything.replace(b"\\\\", b"\\").replace(b"\\n", b"\n")
    places = {secret: texts.find(secret.encode()) for secret in {secret for _, secret in FEW.values()}}
    return {
        kind: texts[max(0, places[secret] - 120) : places[secret] + 60]
        for kind, (_, secret) in FEW.items()
        if places[secret] >= 0
    }
