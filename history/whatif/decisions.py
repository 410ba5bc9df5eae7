"""Comparison of the decisions of two folds of the same inputs.

Two decisions are the same decision when they are of one type, about one thing and of one moment. Ids will not do: they
hold a running number, so a detector that falls silent would rename what others say of the same event. A decision that
only one side has was added or is gone; one that both have with other contents has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from ...projections.emitter import StageOutput
from ...projections.topology import DECISION_TOPICS
from .decision_filters import DecisionFilter

_DECISIONS = frozenset(DECISION_TOPICS)
# Fields with ids, ignored when decisions are compared
_IDENTITY = frozenset({"id", "caused_by", "pattern_id", "nudge_id"})

# Fields that identify the subject of a decision; each type has some of them
_SUBJECT = ("key", "scope", "breaker_key", "call_id", "pattern", "fingerprint", "failure_key", "guarantee")

# Fields of a recorded decision that may differ in a replay, since results are recorded as digests
_DIGESTED = frozenset({"caused_by", "fingerprint"})

# Those of these fields that are shown as the subject
_ABOUT = ("key", "breaker_key", "pattern", "failure_key", "guarantee")

# Maximum decisions of a side that wait for their counterpart, which comes with the same input, soon, or never
OPEN = 50_000


class DecisionExample(NamedTuple):
    """Decision that differs."""

    what: str  # kind of decision as text, e.g. `trust escalated`.
    time: str  # time, RFC 3339
    session: str
    subject: str  # key, circuit or pattern
    reason: str  # reason of the decision
    before: str  # the decision under the first rules; empty if none
    after: str  # the decision under the other rules; empty if none
    caused_by: str  # id of its newest cause


@dataclass(slots=True)
class KindCounts:
    """Counts of one kind of decision; a decision whose kind changes counts as changed in the new kind."""

    before: int = 0
    after: int = 0
    added: int = 0
    gone: int = 0
    changed: int = 0

    @property
    def differs(self) -> bool:
        """True if the counts differ."""
        return bool(self.added or self.gone or self.changed or self.before != self.after)


@dataclass(slots=True)
class DecisionDifferences:
    """Differences of the decisions under other rules: counts by kind, and examples of those added, gone and changed."""

    kinds: dict[str, KindCounts] = field(default_factory=dict)
    added: list[DecisionExample] = field(default_factory=list)
    gone: list[DecisionExample] = field(default_factory=list)
    changed: list[DecisionExample] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """True if both rules make the same decisions."""
        return not any(kind.differs for kind in self.kinds.values())


class RecordedDecisions:
    """Recorded decisions, to be matched with the outputs of a fold.

    Attributes:
        count: number of recorded decisions.
        again: number of those reproduced exactly.
        otherwise: number of those reproduced with differences.
    """

    def __init__(self, decisions: Iterable[tuple[str, str]]) -> None:
        """Index ids and records."""
        self._said = {made: _said_of(orjson.loads(record)) for made, record in decisions}
        self.count = len(self._said)
        self.again = self.otherwise = 0

    def find(self, outputs: Iterable[StageOutput]) -> None:
        """Match outputs with recorded decisions; each is matched once."""
        for output in outputs:
            if output.topic in _DECISIONS and output.value is not None:
                said = self._said.pop(output.id, None)
                if said is not None:
                    same = said == _said_of(orjson.loads(output.value))
                    self.again += same
                    self.otherwise += not same


def _said_of(body: dict[str, Any]) -> int:
    """Hash of a decision's content; whole bodies would need too much memory."""
    kept = {name: value for name, value in body.items() if name not in _DIGESTED}
    return hash(orjson.dumps(kept, option=orjson.OPT_SORT_KEYS))


class OutputComparison:
    """Streaming comparison of the outputs of two folds of the same inputs; keeps only differences.

    Memory is bounded: a decision without a counterpart after `OPEN` further decisions counts as unmatched.
    """

    def __init__(self, passing: DecisionFilter | None = None, *, examples: int = 5) -> None:
        """Count decisions that pass; keep at most `examples` of each kind."""
        self._passing, self._examples = passing or DecisionFilter(), examples
        self._open: tuple[_UnmatchedDecisions, _UnmatchedDecisions] = (_UnmatchedDecisions(), _UnmatchedDecisions())
        self._difference = DecisionDifferences()
        self._shown: Counter[tuple[str, str]] = Counter()

    def take(self, before: Iterable[StageOutput], after: Iterable[StageOutput]) -> None:
        """Add outputs of both sides for the same inputs."""
        sides = self._decisions(before), self._decisions(after)
        if sides[0] == sides[1]:
            for output in sides[0]:
                kind = self._kind(what_of(output))
                kind.before += 1
                kind.after += 1
            return
        for side, outputs in enumerate(sides):
            for output in outputs:
                self._match(side, output)

    def finish(self) -> DecisionDifferences:
        """Finish the comparison; decisions still waiting count as unmatched."""
        for side, waiting in enumerate(self._open):
            for output in sorted(waiting.rest(), key=_place):
                self._settle(side, output)
        self._difference.kinds = dict(sorted(self._difference.kinds.items()))
        return self._difference

    def _decisions(self, outputs: Iterable[StageOutput]) -> list[StageOutput]:
        return [
            output
            for output in outputs
            if output.topic in _DECISIONS and output.value is not None and self._passing.has(output)
        ]

    def _settle(self, side: int, output: StageOutput) -> None:
        """Count a decision as unmatched."""
        kind = self._kind(what_of(output))
        if side == 0:
            kind.gone += 1
            self._example(self._difference.gone, "gone", output, None)
        else:
            kind.added += 1
            self._example(self._difference.added, "added", None, output)

    def _match(self, side: int, output: StageOutput) -> None:
        body = _body(output)
        kind = self._kind(_what(output, body))
        if side == 0:
            kind.before += 1
        else:
            kind.after += 1
        place = (output.type, output.time_ms, output.key, *(body.get(name) for name in _SUBJECT))
        other = self._open[1 - side].take(place)
        if other is None:
            late = self._open[side].put(place, output)
            if late is not None:
                self._settle(side, late)
            return
        before, after = (output, other) if side == 0 else (other, output)
        if before.value != after.value and _said(before) != _said(after):
            self._kind(what_of(after)).changed += 1
            self._example(self._difference.changed, "changed", before, after)

    def _kind(self, what: str) -> KindCounts:
        return self._difference.kinds.setdefault(what, KindCounts())

    def _example(
        self, into: list[DecisionExample], how: str, before: StageOutput | None, after: StageOutput | None
    ) -> None:
        output = after or before
        assert output is not None  # noqa: S101 - one of them is given
        what = what_of(output)
        self._shown[how, what] += 1
        if self._shown[how, what] > self._examples:
            return
        body = _body(output)
        causes = body.get("caused_by") or [""]
        into.append(
            DecisionExample(
                what=what,
                time=str(body.get("time", "")),
                session=str(body.get("session_id") or body.get("workspace_id") or ""),
                subject=str(next((body[name] for name in _ABOUT if body.get(name)), "")),
                reason=str(
                    body.get("reason") or body.get("message") or body.get("trigger") or body.get("severity") or ""
                ),
                before=_briefly(before),
                after=_briefly(after),
                caused_by=str(causes[-1]),
            )
        )


class _UnmatchedDecisions:
    """Unmatched decisions of one side, first in first out per (type, subject, time)."""

    def __init__(self) -> None:
        self._at: dict[tuple[Any, ...], list[StageOutput]] = {}
        self._count = 0

    def put(self, place: tuple[Any, ...], output: StageOutput) -> StageOutput | None:
        """Add a decision; returns the oldest one if there are too many."""
        self._at.setdefault(place, []).append(output)
        self._count += 1
        return self.take(next(iter(self._at))) if self._count > OPEN else None

    def take(self, place: tuple[Any, ...]) -> StageOutput | None:
        """Remove and return the oldest decision of a place."""
        found = self._at.get(place)
        if found is None:
            return None
        self._count -= 1
        output = found.pop(0)
        if not found:
            del self._at[place]
        return output

    def rest(self) -> list[StageOutput]:
        """All unmatched decisions."""
        return [output for waiting in self._at.values() for output in waiting]


def what_of(output: StageOutput) -> str:
    """Kind of a decision as text: `trust escalated`, `circuit open`, `pattern repetitive_calls`, `nudge gentle`."""
    return _what(output, _body(output))


def _what(output: StageOutput, body: dict[str, Any]) -> str:
    if output.type == "trust.changed":
        return f"trust {body['to']}"
    if output.type == "breaker.changed":
        return f"circuit {body['to']}"
    if output.type == "pattern.detected":
        return f"pattern {body['pattern']}"
    if output.type == "nudge.issued":
        return f"nudge {body['nudge_type']}"
    return output.type.replace(".", " ").replace("_", " ")


def _body(output: StageOutput) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(output.value or b"{}")
    return found


def _said(output: StageOutput) -> dict[str, Any]:
    return {name: value for name, value in _body(output).items() if name not in _IDENTITY}


def _briefly(output: StageOutput | None) -> str:
    if output is None:
        return ""
    body = _body(output)
    words = [
        str(body[name])
        for name in ("to", "severity", "nudge_type", "suggested_model", "repetitions", "reason")
        if name in body
    ]
    return ", ".join(words) or output.type


def _place(output: StageOutput) -> tuple[int, str]:
    return output.time_ms, output.id
