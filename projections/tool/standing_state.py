"""What is remembered of a tool for the fleet's sake. Bounded; fields are only ever appended."""

from __future__ import annotations

import msgspec

MAX_USERS = 8
"""Users remembered per tool and workspace: the latest to have begun using it there."""


class StandingRecord(msgspec.Struct, array_like=True):
    """Calls of one tool in one workspace, and what the fleet knows of them.

    Attributes:
        users: who calls it here, in the order they came.
        until: end of the newest bucket, milliseconds.
        tally: calls and failures of the newest bucket, then those of the ones before.
        told: trust state that the fleet was told last; empty when it needs to know nothing.
        told_calls: calls it was told.
        told_failures: failures it was told.
        told_until: end of the bucket in which it was told.
    """

    users: list[str] = []
    until: int = 0
    tally: list[int] = []
    told: str = ""
    told_calls: int = 0
    told_failures: int = 0
    told_until: int = 0
