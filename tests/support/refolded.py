"""Histories folded again, for tests."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from trustfold.history.catalogue import connect
from trustfold.history.inputs import lined_up
from trustfold.schemas.rules import EscalationPatch, Rules
from trustfold.surfaces.comparing import Compared, Present, compare, recorded_rules
from trustfold.surfaces.whatif import warm_up


def compared(root: Path, other: Rules, *, since: datetime | None = None, present: Rules | None = None) -> Compared:
    """Other rules against those in force: as recorded, else the shipped ones; or against given ones."""
    with connect(root, threads=2) as connection, lined_up(connection, since, warm_up(since)) as inputs:
        recorded = tuple(recorded_rules(connection)) if present is None else ()
        return compare(connection, inputs, Present(present or Rules(), recorded), other, since)


def lenient() -> Rules:
    """One threshold changed: five failures escalate instead of three."""
    rules = Rules()
    trust = msgspec.structs.replace(rules.trust, default_rule=EscalationPatch(count_threshold=5))
    return msgspec.structs.replace(rules, trust=trust)
