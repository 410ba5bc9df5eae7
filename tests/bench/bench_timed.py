"""Processors that know how long they fold: what of a contestant's time is the folds' and what is its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from trustfold.projections.processor import StageProcessor


class TimedProcessor(StageProcessor):
    """A processor that adds up the processor time of its folds, for all of its kind together."""

    spent = 0.0
    """Seconds."""

    def process(self, topic: str, records: Iterable[Any]) -> list[Any]:
        """Fold, and look at the clock of this thread before and after."""
        started = time.thread_time()
        outputs = super().process(topic, records)
        TimedProcessor.spent += time.thread_time() - started
        return outputs


def make_processor(
    stage: Any, partition: int, rules: Any, load: Callable[[bytes], bytes | None] = lambda _key: None
) -> TimedProcessor:
    """As `projections.processor.StageProcessor`."""
    return TimedProcessor(stage, partition=partition, rules=rules, load=load)
