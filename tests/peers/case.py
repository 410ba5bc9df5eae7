"""A case of the peer suite: what happens, under which configuration, and what must come of it.

A case tells what one peer does. Where that is a defect or a detail of the peer's, the case carries in `ours` what must
come of it here; `note` in `ours` is for people and checks nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

_Value = TypeVar("_Value")

FIELDS = frozenset("id peer source_file capability given config expect ours basis adopt checked why".split())
FORMAT = "abstract behavioural cases, v1"


class UnknownWord(Exception):
    """The case uses a word that the adapter does not know; it must not pass by being overlooked."""


def refuse_fields(event: dict[str, Any], known: Iterable[str], what: str) -> None:
    """Refuse a table that says more than is read. Raises UnknownWord: names the first field that is not known."""
    unknown = sorted(event.keys() - set(known))
    if unknown:
        raise UnknownWord(f"field {unknown[0]!r} of {what}")


def times(event: dict[str, Any]) -> range:
    """Numbers of an event's repetitions."""
    return range(int(event.get("times", 1)))


def known(value: Any, words: Mapping[Any, _Value], what: str) -> _Value:
    """What a word stands for. Raises UnknownWord: it is none of these words."""
    if value not in words:
        raise UnknownWord(f"{what} {value!r}")
    return words[value]


def by_word(table: Mapping[str, _Value]) -> dict[str, _Value]:
    """A table with a row for each word, from rows for all words of one thing."""
    return {word: value for words, value in table.items() for word in words.split()}


class Case(NamedTuple):
    """One case.

    Attributes:
        capability: what it is about, `area.detail`.
        given: what happens, in order.
        config: the peer's settings.
        wanted: what must come of it here, by name.
        peer: whose behaviour it tells.
        own: `wanted` tells ours in our own words, not the peer's.
        unwanted: the peer's defect, where nothing says what comes in its place: it must not come out.
    """

    capability: str
    given: list[dict[str, Any]]
    config: dict[str, Any]
    wanted: dict[str, Any]
    peer: str
    own: bool
    unwanted: dict[str, Any] | None

    @property
    def area(self) -> str:
        """First word of the capability."""
        return self.capability.partition(".")[0]


def read_cases(path: Path) -> list[dict[str, Any]]:
    """Cases of a file, unread. Raises ValueError: it is no file of cases."""
    document = json.loads(path.read_text(encoding="utf-8"))
    cases = document.get("cases") if isinstance(document, dict) else document
    if not isinstance(cases, list):
        raise ValueError(f"{path}: no list of cases")  # noqa: TRY004 - the file's fault, not a caller's
    if isinstance(document, dict) and document.get("format", FORMAT) != FORMAT:
        raise ValueError(f"{path}: format {document['format']!r}; this adapter reads {FORMAT!r}")
    return cases


def read_case(document: dict[str, Any]) -> Case:
    """One case. Raises UnknownWord: it has a field or a verdict the format does not know."""
    refuse_fields(document, FIELDS, "the case")
    adopt, expect = document.get("adopt", "yes"), dict(document.get("expect") or {})
    ours = {name: value for name, value in (document.get("ours") or {}).items() if name not in {"note", "why"}}
    wanted = known(adopt, {"yes": {**expect, **ours}, "adapt": ours or expect, "no": ours}, "adopt")
    return Case(
        capability=str(document["capability"]),
        given=list(document.get("given") or []),
        config=dict(document.get("config") or {}),
        wanted=wanted,
        peer=str(document.get("peer") or ""),
        own=adopt == "no" or (adopt == "adapt" and bool(ours)),
        unwanted=expect if adopt == "no" and not wanted else None,
    )
