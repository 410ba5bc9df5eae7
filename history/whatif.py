"""Comparing what was decided under two sets of rules: pure counting, whoever did the folding.

Ids derive from the event behind a decision, its type and a running number, so the same decision has the same id under
any rules. One that only one side has was added or is gone; one that both have with other contents has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from ..projections.emit import Output
from ..projections.topology import DECISION_TOPICS

_DECISIONS = frozenset(DECISION_TOPICS)
_BOOKKEEPING = frozenset({"caused_by"})


class Example(NamedTuple):
    """One decision that differs.

    Attributes:
        what: kind of decision in words, e.g. `trust escalated`.
        time: when, RFC 3339.
        session: in which session.
        subject: about which key, circuit or pattern.
        reason: why.
        before: what it was under the first rules; empty when there was none.
        after: what it is under the second ones; empty when there is none.
        caused_by: id of the newest event behind it.
    """

    what: str
    time: str
    session: str
    subject: str
    reason: str
    before: str
    after: str
    caused_by: str


@dataclass(slots=True)
class Kind:
    """Counts of one kind of decision."""

    before: int = 0
    after: int = 0
    added: int = 0
    gone: int = 0
    changed: int = 0

    @property
    def differs(self) -> bool:
        """Whether the rules made a difference here."""
        return bool(self.added or self.gone or self.changed)


@dataclass(slots=True)
class Difference:
    """What other rules would have decided.

    Attributes:
        kinds: counts by kind of decision.
        added: examples of what would have been caught.
        gone: examples of what would have been spared.
        changed: examples of what would have been said otherwise.
    """

    kinds: dict[str, Kind] = field(default_factory=dict)
    added: list[Example] = field(default_factory=list)
    gone: list[Example] = field(default_factory=list)
    changed: list[Example] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether both rules decide the same."""
        return not any(kind.differs for kind in self.kinds.values())


class Comparison:
    """Takes the outputs of two folds of the same inputs, as they come, and keeps what is not the same."""

    def __init__(self, *, since_ms: int = 0, examples: int = 5) -> None:
        """Count decisions from a time on; keep so many examples of each kind."""
        self._since, self._examples = since_ms, examples
        self._open: tuple[dict[str, Output], dict[str, Output]] = ({}, {})
        self._difference = Difference()
        self._shown: Counter[tuple[str, str]] = Counter()

    def take(self, before: Iterable[Output], after: Iterable[Output]) -> None:
        """Outputs of both sides for the same input, or for any stretch of inputs."""
        for side, outputs in enumerate((before, after)):
            for output in outputs:
                if output.topic in _DECISIONS and output.value is not None and output.time_ms >= self._since:
                    self._match(side, output)

    def finish(self) -> Difference:
        """Everything compared; what is still without its counterpart has none."""
        gone, added = self._open
        for output in sorted(gone.values(), key=_place):
            kind = self._kind(what_of(output))
            kind.gone += 1
            self._example(self._difference.gone, "gone", output, None)
        for output in sorted(added.values(), key=_place):
            kind = self._kind(what_of(output))
            kind.added += 1
            self._example(self._difference.added, "added", None, output)
        self._open = ({}, {})
        self._difference.kinds = dict(sorted(self._difference.kinds.items()))
        return self._difference

    def _match(self, side: int, output: Output) -> None:
        kind = self._kind(what_of(output))
        if side == 0:
            kind.before += 1
        else:
            kind.after += 1
        other = self._open[1 - side].pop(output.id, None)
        if other is None:
            self._open[side][output.id] = output
            return
        before, after = (output, other) if side == 0 else (other, output)
        if before.value != after.value and _said(before) != _said(after):
            kind.changed += 1
            self._example(self._difference.changed, "changed", before, after)

    def _kind(self, what: str) -> Kind:
        return self._difference.kinds.setdefault(what, Kind())

    def _example(self, into: list[Example], how: str, before: Output | None, after: Output | None) -> None:
        output = after or before
        assert output is not None  # noqa: S101 - one of them is there
        what = what_of(output)
        self._shown[how, what] += 1
        if self._shown[how, what] > self._examples:
            return
        body = _body(output)
        causes = body.get("caused_by") or [""]
        into.append(
            Example(
                what=what,
                time=str(body.get("time", "")),
                session=str(body.get("session_id") or body.get("workspace_id") or ""),
                subject=str(body.get("key") or body.get("breaker_key") or body.get("pattern") or ""),
                reason=str(
                    body.get("reason") or body.get("message") or body.get("trigger") or body.get("severity") or ""
                ),
                before=_briefly(before),
                after=_briefly(after),
                caused_by=str(causes[-1]),
            )
        )


def what_of(output: Output) -> str:
    """Kind of a decision in words: `trust escalated`, `circuit open`, `pattern repetitive_calls`, `nudge gentle`."""
    body = _body(output)
    if output.type == "trust.changed":
        return f"trust {body['to']}"
    if output.type == "breaker.changed":
        return f"circuit {body['to']}"
    if output.type == "pattern.detected":
        return f"pattern {body['pattern']}"
    if output.type == "nudge.issued":
        return f"nudge {body['nudge_type']}"
    return output.type.replace(".", " ").replace("_", " ")


def _body(output: Output) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(output.value or b"{}")
    return found


def _said(output: Output) -> dict[str, Any]:
    return {name: value for name, value in _body(output).items() if name not in _BOOKKEEPING}


def _briefly(output: Output | None) -> str:
    if output is None:
        return ""
    body = _body(output)
    words = [str(body[name]) for name in ("to", "severity", "nudge_type", "repetitions", "reason") if name in body]
    return ", ".join(words) or output.type


def _place(output: Output) -> tuple[int, str]:
    return output.time_ms, output.id
