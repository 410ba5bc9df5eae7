"""Contestant: the folds alone, no transport; each trace as the log of one partition."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import bench_events
import bench_process
import orjson
from trustfold.projections.processor import StageProcessor
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import RuleSet
from trustfold.schemas.codec import decode_event

BATCH = 500
"""Records handed to a processor at once, about what a poll gives."""

ENOUGH = 5_000
"""Events below which a trace is folded several times over, each time from nothing."""


class Record(NamedTuple):
    """A record as the processors read it."""

    value: bytes
    offset: int
    key: bytes | None = None
    timestamp: int = -1
    headers: tuple[tuple[str, bytes], ...] = ()


def main() -> None:
    """Fold every trace `runs` times and say what each took, in microseconds."""
    task = bench_process.begin()
    found = bench_events.sources(Path(task.folder))
    logs = {source.name: [told.value for told in source.events][: task.most or None] for source in found}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in logs}
    for turn in range(task.runs + 1):
        for name, values in logs.items():
            measured = _measure(values)
            if turn:  # the first warms up
                runs[name].append(measured)
    bench_process.finish({"said": bench_events.said_of(found), "runs": runs})


def _measure(values: list[bytes]) -> dict[str, float]:
    passes = [_pass(values) for _ in range(1 + ENOUGH // len(values))]
    total: dict[str, float] = {key: sum(single[key] for single in passes) for key in passes[0]}
    return {
        "events": len(values),
        "outcomes": total["outcomes"] / len(passes),
        "session": total["session"] / total["events"] * 1e6,
        "tool": total["tool"] / max(total["outcomes"], 1) * 1e6,
        "decode": total["decode"] / total["events"] * 1e6,
        "orjson": total["orjson"] / total["events"] * 1e6,
        "orjson of outcomes": total["orjson of outcomes"] / max(total["outcomes"], 1) * 1e6,
    }


def _pass(values: list[bytes]) -> dict[str, float]:
    """Seconds of one pass over a log, with nothing remembered from the one before."""
    _forget()
    session, caused = _fold(0, values)
    outcomes = [output.value for output in caused if output.topic == "outcomes"]
    del caused
    tool, _ = _fold(1, outcomes)
    return {
        "events": len(values),
        "outcomes": len(outcomes),
        "session": session,
        "tool": tool,
        "decode": _each(decode_event, values),
        "orjson": _each(orjson.loads, values),
        "orjson of outcomes": _each(orjson.loads, outcomes),
    }


def _fold(stage: int, values: list[bytes]) -> tuple[float, list[Any]]:
    records: list[Any] = [Record(value, offset) for offset, value in enumerate(values)]
    processor = StageProcessor(STAGES[stage], 0, RuleSet())
    topic = next(iter(STAGES[stage].sources))
    outputs: list[Any] = []
    started = time.process_time()
    for start in range(0, len(records), BATCH):
        outputs += processor.process(topic, records[start : start + BATCH])
    seconds = time.process_time() - started
    if processor.rejected:
        raise SystemExit(f"the {STAGES[stage].name} stage refused {processor.rejected} of {len(records)} records")
    return seconds, outputs


def _each(call: Callable[[bytes], Any], values: list[bytes]) -> float:
    started = time.process_time()
    for value in values:
        call(value)
    return time.process_time() - started


def _forget() -> None:
    """Empty the folds' caches: a second pass over the same events must not find the answers of the first."""
    for thing in gc.get_objects():
        if isinstance(thing, functools._lru_cache_wrapper) and thing.__module__.startswith("trustfold."):
            thing.cache_clear()
    bench_process.tune_collector()


if __name__ == "__main__":
    main()
