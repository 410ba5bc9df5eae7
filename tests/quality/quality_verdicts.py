"""Detections read by eye: which to read, what was said of them, and the precision that follows.

A row of `verdicts.ndjson` is one detection: where it is, `request` (the call, shortened), `verdict` and `reason` in a
sentence. `right`: a reader would have wanted it. `useless`: true, but of no help. `false`: the agent was not stuck.
Of sources whose licence forbids more, a row has only source, pattern, verdict and reason.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from quality_measure import Detection, Measured
from quality_sessions import Ending, Labels

FILE = Path(__file__).parent / "verdicts.ndjson"
OF_PATTERN = 8
"""Detections of each pattern that are read in a benchmark, whatever came of their sessions."""
OF_PAUSES = 16
"""Detections that interrupted the run, read in the benchmarks."""

RIGHT, USELESS, FALSE = VERDICTS = ("right", "useless", "false")

Row = dict[str, Any]
Key = tuple[str, str, str, int]


class Judged(NamedTuple):
    """Verdicts beside the detections of a run.

    Attributes:
        known: rows of detections that still occur.
        gone: rows of detections that no longer do.
        unread: detections of the sample without a verdict.
    """

    known: list[Row]
    gone: list[Row]
    unread: list[Detection]

    @property
    def precision(self) -> dict[str, Counter[str]]:
        """Verdicts by pattern."""
        return verdicts_by_pattern(self.known)


def rows() -> list[Row]:
    """All verdicts."""
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()] if FILE.exists() else []


def verdicts_by_pattern(judged: Iterable[Row]) -> dict[str, Counter[str]]:
    """Number of each verdict, by pattern."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in judged:
        found[row["pattern"]][row["verdict"]] += 1
    return dict(sorted(found.items()))


def judge(measured: list[Measured], labels: Labels) -> Judged:
    """Compare the verdicts with the detections of the sources that were measured."""
    sources = {one.source for one in measured}
    occurring = Counter(_key(one) for source in measured for one in source.detections)
    nameless = Counter((one.source, one.pattern) for source in measured for one in source.detections)
    known, gone = [], []
    for row in rows():
        if row["source"] not in sources:
            continue
        if "session" in row:
            counts, key = occurring, (row["source"], row["session"], row["pattern"], row["call"])
        else:
            counts, key = nameless, (row["source"], row["pattern"])  # type: ignore[assignment]
        (known if counts[key] > 0 else gone).append(row)  # type: ignore[index]
        counts[key] -= 1  # type: ignore[index]
    return Judged(known, gone, list(_unread(measured, labels, known)))


def _unread(measured: list[Measured], labels: Labels, known: list[Row]) -> Iterator[Detection]:
    read = Counter((row["source"], row["session"], row["pattern"], row["call"]) for row in known if "session" in row)
    nameless = Counter((row["source"], row["pattern"]) for row in known if "session" not in row)
    for one in sample(measured, labels):
        counts, key = (read, _key(one)) if read[_key(one)] > 0 else (nameless, (one.source, one.pattern))
        if counts[key] > 0:  # type: ignore[index]
            counts[key] -= 1  # type: ignore[index]
        else:
            yield one


def sample(measured: list[Measured], labels: Labels) -> list[Detection]:
    """Detections to read: all outside of benchmarks, all of successful sessions, and some of each pattern and pauses.

    The order of the draw depends on each detection alone: the sample stays where the rules say the same.
    """
    found: list[Detection] = []
    drawn: list[Detection] = []
    for source in measured:
        for one in source.detections:
            certain = (
                source.source not in labels.benchmarks or labels.ending(one.source, one.session) is Ending.SUCCEEDED
            )
            (found if certain else drawn).append(one)
    drawn.sort(key=lambda one: crc32(repr(_key(one)).encode()))
    by_pattern: Counter[tuple[str, str]] = Counter()
    pauses = 0
    for one in drawn:
        if one.paused and pauses < OF_PAUSES:
            pauses += 1
        elif by_pattern[one.source, one.pattern] >= OF_PATTERN:
            continue
        by_pattern[one.source, one.pattern] += 1
        found.append(one)
    return found


def told(row: Row) -> str:
    """A verdict in one line."""
    place = f" {row['session']} at call {row['call']}" if "session" in row else ""
    return f"{row['source']}{place}: {row['pattern']}, {row['verdict']} ({row['reason']})"


def blank(one: Detection) -> str:
    """A row to fill in."""
    row = {
        "source": one.source, "session": one.session, "pattern": one.pattern, "severity": one.severity,
        "call": one.call, "request": one.request[:80], "verdict": "", "reason": "",
    }  # fmt: skip
    return json.dumps(row, ensure_ascii=False)


def _key(one: Detection) -> Key:
    return one.source, one.session, one.pattern, one.call
