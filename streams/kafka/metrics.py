"""Counters of one worker, as plain numbers: whoever exports them reads the attributes.

All counts are since the start of the process; times are seconds, sizes bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class LaneMetrics:
    """What a worker counts.

    Attributes:
        records: source records handed to a processor, by catalogue topic name.
        batches: polls of a partition that gave at least one record.
        outputs: records written, by catalogue topic name; includes dead letters.
        checkpoints: checkpoints that wrote or acknowledged something.
        checkpoint_seconds: total time of those, from snapshot to acknowledgement.
        checkpoint_last_seconds: duration of the newest.
        checkpoint_keys: states written.
        checkpoint_bytes: bytes of those states.
        ticks: events appended because something fell due.
        lag: records between the last one processed and the log end, by (catalogue topic name, partition).
        assigned: stage partitions this worker owns now.
        rebalances: assignments taken.
        recovered_records: changelog records read back.
        recovery_seconds: total time between an assignment and the first delivery.
        stale_records: changelog records ignored because a worker wrote them after it had lost its partition.
        folds: what the folds count, by name: `untracked`, failures that counted in their tool's key alone because the
            tool had its most fine keys (`trust.max_fine_keys`).
        dead_letter_reasons: dead letters by reason code.
        producer_restarts: producers put in the place of one whose batches had failed.
        offset_jumps: deliveries that began beyond the expected offset (retention or compaction removed records).
    """

    records: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    outputs: Counter[str] = field(default_factory=Counter)
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    checkpoint_last_seconds: float = 0.0
    checkpoint_keys: int = 0
    checkpoint_bytes: int = 0
    ticks: int = 0
    lag: dict[tuple[str, int], int] = field(default_factory=dict)
    assigned: int = 0
    rebalances: int = 0
    recovered_records: int = 0
    recovery_seconds: float = 0.0
    stale_records: int = 0
    offset_jumps: int = 0
    folds: Counter[str] = field(default_factory=Counter)
    dead_letter_reasons: Counter[str] = field(default_factory=Counter)
    producer_restarts: int = 0

    @property
    def dead_letters(self) -> int:
        """Records that could not be processed."""
        return self.outputs["dead-letters"]
