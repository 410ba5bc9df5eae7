"""What an execution under limits has spent. Bounded; fields are only ever appended."""

from __future__ import annotations

import msgspec

MAX_OVERRIDES = 16
"""Overrides remembered per execution, to name them in what is decided."""


class GuaranteeRecord(msgspec.Struct, array_like=True):
    """One execution: from its first recursive call, or from the first override, to the end of its session.

    Attributes:
        started_at: when it began, milliseconds.
        cost_usd: US dollars spent by its finished calls.
        recursive_calls: recursive calls started.
        completed: calls that succeeded; a partial result rests on them.
        limits: cost, seconds and calls as overridden; None: the rules' limit holds.
        told: bits of what has been said: 1, 2, 4 warned and 8, 16, 32 violated, of cost, duration and calls.
        overrides: ids of the overrides used, newest last.
    """

    started_at: int
    cost_usd: float = 0.0
    recursive_calls: int = 0
    completed: int = 0
    limits: list[float | None] = msgspec.field(default_factory=lambda: [None, None, None])
    told: int = 0
    overrides: list[str] = []
