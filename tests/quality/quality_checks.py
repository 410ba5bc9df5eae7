"""How often people would be bothered: what a guard would have done with each call of recorded sessions."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from quality_sessions import Source
from trustfold.cli.checks import CHECKS, Check, Checker, Verdict, check_of
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import Rules
from trustfold.schemas.outcomes import DEFAULT_WORKSPACE

KEYS_SHOWN = 5


class Interruption(NamedTuple):
    """A call that would not simply have been made.

    Attributes:
        line: number of its start in its source.
        causes: ids of the events behind the latest change of the key or circuit that decided.
    """

    source: str
    check: Check
    line: int
    causes: tuple[str, ...] = ()


@dataclass(slots=True)
class SourceChecks:
    """What a guard would have done with the calls of one source."""

    source: str
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    interruptions: list[Interruption] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """Calls that were checked."""
        return self.verdicts.total()

    @property
    def share(self) -> float:
        """Share of the calls that would have been asked about or refused, 0 to 1."""
        return len(self.interruptions) / self.calls if self.calls else 0.0

    @property
    def keys(self) -> Counter[str]:
        """Interruptions by the trust key or circuit that decided."""
        return Counter(one.check.key for one in self.interruptions)

    @property
    def sessions(self) -> int:
        """Sessions with an interruption."""
        return len({one.check.session_id for one in self.interruptions})

    def as_json(self) -> dict[str, Any]:
        """The figures, for programs."""
        return {
            "calls": self.calls,
            "asked": self.verdicts[Verdict.ASK],
            "refused": self.verdicts[Verdict.DENY],
            "circuit_open": self.verdicts[Verdict.CIRCUIT_OPEN],
            "share_interrupted": self.share,
            "sessions_interrupted": self.sessions,
            "keys": dict(self.keys.most_common()),
        }

    def cells(self) -> list[str]:
        """The figures as a row of a table, under `COLUMNS`."""
        counts = [self.verdicts[word] for word in (Verdict.ASK, Verdict.DENY, Verdict.CIRCUIT_OPEN)]
        keys = ", ".join(f"{key} {count:,}" for key, count in self.keys.most_common(KEYS_SHOWN))
        return [self.source, f"{self.calls:,}", *(f"{count:,}" for count in counts), f"{self.share:.2%}", keys]


COLUMNS = ("source", "calls", "asked", "refused", "circuit open", "share", "most by")


def measure(source: Source, rules: Rules) -> SourceChecks:
    """Fold a source as it was recorded, and check each of its calls."""
    found = SourceChecks(source.name)
    checker = Checker(LocalTopology(rules))
    causes: dict[tuple[str, str], tuple[str, ...]] = {}
    for number, line in enumerate(source.lines()):
        for output in checker.feed("events", (line,)):
            if output.type in {"trust.changed", "breaker.changed"}:
                told = orjson.loads(output.value or b"{}")
                if told.get("caused_by"):
                    key = told["workspace_id"], told.get("key") or told["breaker_key"]
                    causes[key] = tuple(told["caused_by"])
            elif output.topic == CHECKS:
                check = check_of(output)
                found.verdicts[check.decision] += 1
                if check.decision is not Verdict.ALLOW:
                    workspace = orjson.loads(line).get("workspace_id") or DEFAULT_WORKSPACE
                    behind = causes.get((workspace, check.key), ())
                    found.interruptions.append(Interruption(source.name, check, number, behind))
    return found


def sample(measured: list[SourceChecks], count: int) -> list[Interruption]:
    """Some of the interruptions, the same at each run, spread over sources and keys."""
    by_key: dict[tuple[str, str], list[Interruption]] = {}
    for one in (one for checks in measured for one in checks.interruptions):
        by_key.setdefault((one.source, one.check.key), []).append(one)
    chance = random.Random(3)
    pools = [chance.sample(found, len(found)) for _, found in sorted(by_key.items())]
    chosen: list[Interruption] = []
    while len(chosen) < count and any(pools):
        chosen += [pool.pop() for pool in chance.sample(pools, len(pools)) if pool]
    return chosen[:count]
