"""Histories folded again, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from duckdb import DuckDBPyConnection
from fixed_rules import Rules
from trustfold.cli.checks import CallChecker
from trustfold.cli.whatif import warm_up
from trustfold.history.catalogue import connect
from trustfold.history.filters import EVERYTHING, HistoryFilters
from trustfold.history.inputs import lined_up
from trustfold.history.whatif.compare import ComparisonResult, compare, decisions_of
from trustfold.history.whatif.decision_filters import passing
from trustfold.history.whatif.rules_replay import PresentRules, RecordedInputs, recorded_rules
from trustfold.rules.rules import SeverityLadder


def compared(
    root: Path,
    other: Rules,
    *,
    since: datetime | None = None,
    present: Rules | None = None,
    filters: HistoryFilters = EVERYTHING,
) -> ComparisonResult:
    """Other rules against those in force: as recorded, else the shipped ones; or against given ones."""
    filters = filters._replace(since=since or filters.since)
    with (
        _catalogues(root, filters) as (connection, filtered),
        lined_up(connection, filters.since, warm_up(filters.since)) as inputs,
    ):
        recorded = tuple(recorded_rules(connection)) if present is None else ()
        material = RecordedInputs(connection, inputs, passing(connection, filters), guard=CallChecker)
        return compare(material, PresentRules(present or Rules(), recorded), other, decided=decisions_of(filtered))


READS = (
    "decisions events tool_calls patterns recorded_from recorded_events recorded_commands "
    "recorded_settings recorded_rules recorded_outcomes recorded_standings"
)
"""Views that a comparison reads."""


@contextmanager
def _catalogues(root: Path, filters: HistoryFilters) -> Iterator[tuple[DuckDBPyConnection, DuckDBPyConnection]]:
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
    behaviour = msgspec.structs.replace(rules.behaviour, repetitive_calls=SeverityLadder(minor=2, moderate=4, severe=6))
    return msgspec.structs.replace(rules, behaviour=behaviour)


def watchful() -> Rules:
    """Two thresholds changed: results that bring nothing new are told at the second."""
    rules = Rules()
    ladder = SeverityLadder(minor=2, moderate=4, severe=None)
    behaviour = msgspec.structs.replace(rules.behaviour, reread=ladder, stagnation=ladder)
    return msgspec.structs.replace(rules, behaviour=behaviour)
