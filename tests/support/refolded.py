"""Histories folded again, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from duckdb import DuckDBPyConnection
from fixed_rules import Rules
from trustfold.cli.checks import Checker
from trustfold.cli.whatif import warm_up
from trustfold.history.catalogue import connect
from trustfold.history.filters import EVERYTHING, Filters
from trustfold.history.inputs import lined_up
from trustfold.history.whatif.compare import Compared, compare, decisions_of
from trustfold.history.whatif.decision_filters import passing
from trustfold.history.whatif.replay import Material, Present, recorded_rules
from trustfold.rules.rules import Ladder


def compared(
    root: Path,
    other: Rules,
    *,
    since: datetime | None = None,
    present: Rules | None = None,
    filters: Filters = EVERYTHING,
) -> Compared:
    """Other rules against those in force: as recorded, else the shipped ones; or against given ones."""
    filters = filters._replace(since=since or filters.since)
    with (
        _catalogues(root, filters) as (connection, filtered),
        lined_up(connection, filters.since, warm_up(filters.since)) as inputs,
    ):
        recorded = tuple(recorded_rules(connection)) if present is None else ()
        material = Material(connection, inputs, passing(connection, filters), guard=Checker)
        return compare(material, Present(present or Rules(), recorded), other, decided=decisions_of(filtered))


READS = (
    "decisions events tool_calls patterns recorded_from recorded_events recorded_commands "
    "recorded_settings recorded_rules recorded_outcomes recorded_standings"
)
"""Views that a comparison reads."""


@contextmanager
def _catalogues(root: Path, filters: Filters) -> Iterator[tuple[DuckDBPyConnection, DuckDBPyConnection]]:
    """The catalogue of everything, and the one with filters."""
    with ExitStack() as stack:
        whole = stack.enter_context(connect(root, threads=2, query=READS))
        narrowed = filters != EVERYTHING
        yield whole, stack.enter_context(connect(root, filters=filters, threads=2, query=READS)) if narrowed else whole


def lenient() -> Rules:
    """One threshold changed: five failures escalate instead of three."""
    rules = Rules()
    patient = msgspec.structs.replace(rules.trust.default_rule, count_threshold=5)
    trust = msgspec.structs.replace(rules.trust, default_rule=patient)
    return msgspec.structs.replace(rules, trust=trust)


def nervous() -> Rules:
    """One threshold changed: two equal calls are a loop."""
    rules = Rules()
    behaviour = msgspec.structs.replace(rules.behaviour, repetitive_calls=Ladder(minor=2, moderate=4, severe=6))
    return msgspec.structs.replace(rules, behaviour=behaviour)


def watchful() -> Rules:
    """Two thresholds changed: results that bring nothing new are told at the second."""
    rules = Rules()
    ladder = Ladder(minor=2, moderate=4, severe=None)
    behaviour = msgspec.structs.replace(rules.behaviour, reread=ladder, stagnation=ladder)
    return msgspec.structs.replace(rules, behaviour=behaviour)
