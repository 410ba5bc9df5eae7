"""Replay of recorded inputs through the local topology."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import duckdb
import msgspec

from ...errors import ConfigError, EventRejected
from ...projections.emitter import StageOutput
from ...projections.local_topology import LocalTopology, LogRecord
from ...projections.processor import CLOCK_TOLERANCE_MS
from ...projections.rule_source import RULES_TOPIC, RulesInForce, RuleSource, RulesPlaced, rules_in_force
from ...projections.rule_source import TOPIC as SETTINGS
from ...projections.topology import STAGES
from ...rules.rules import RuleSet
from ...schemas.codec import decode_event
from ...schemas.events import ToolCallStarted, epoch_ms
from ...schemas.settings import SettingsOverrides
from ..inputs import FoldInput, InputFile
from .decision_filters import DecisionFilter
from .guard_replay import GuardOf, StoppedCall

KEPT_EDITIONS = 64  # Number of cached rules of Kafka's partitions; recent ones are used repeatedly, older ones rarely
_TOLD = frozenset({"outcomes", "standings"})  # Topics of messages between stages


class _CausedRecord(msgspec.Struct):
    """The only field of an outcome or a standing used here."""

    cause: str = ""


_cause = msgspec.json.Decoder(_CausedRecord).decode


class PresentRules(NamedTuple):
    """The rules to compare with."""

    rules: RuleSet  # rules of a file, or the defaults; with `recorded`, only until the first recorded rules
    recorded: tuple[RuleSet, ...] = ()  # recorded rules in force over time; the fold follows them


class RecordedInputs(NamedTuple):
    """Inputs to fold, and the filters of what counts."""

    connection: duckdb.DuckDBPyConnection  # unfiltered connection to the history
    inputs: InputFile
    passing: DecisionFilter  # filter for decisions, stopped calls and alarms
    environment: SettingsOverrides | None = None  # overrides of the environment, until the first recorded ones
    guard: GuardOf | None = None  # determines which calls would have been asked about or refused; None: no guard


class RulesReplay:
    """Fold of recorded inputs under some rules.

    What fell due in the recorded run was appended to its log and is folded where it stood, so the same rules decide
    the same. Rules under which calls fall due at other times cannot go by that (`echoes=False`): it is left out, and
    time passes as it does for the engines: from the largest event time seen on, by what lies between two arrivals.

    What the environment overrode is taken from the records where they tell it; it is not part of the rules compared.
    """

    def __init__(
        self,
        rules: RuleSet | PresentRules,
        inputs: InputFile | None = None,
        *,
        environment: SettingsOverrides | None = None,
        echoes: bool = True,
        guard: GuardOf | None = None,
    ) -> None:
        """Start with default states and without overrides.

        Args:
            rules: what to fold by; of `PresentRules` with recorded ones, those that were in force, as the records tell.
            inputs: what will be fed, for the rules and settings that held on Kafka.
            environment: what the environment overrides, until the records tell.
            echoes: fold what fell due where it was recorded.
            guard: tells of each call what a guard would have done with it. [default: nobody does]
        """
        self._source = RuleSource(rules.rules if isinstance(rules, PresentRules) else rules, environment)
        # the states so far
        self.topology = LocalTopology(self._source, choose=self._rules_of if inputs and inputs.editions else None)
        self._folded = {SETTINGS, *(topic for stage in STAGES for topic in stage.sources)}
        self._echoes = echoes
        self._follow = isinstance(rules, PresentRules) and bool(rules.recorded)
        self._inputs = inputs
        self._given: FoldInput | None = None
        self._editions: dict[int, RuleSource] = {}
        self._latest = -1
        self._guard = guard(self.topology) if guard is not None else None
        self.held: list[StoppedCall] = []  # calls that a guard would have stopped since the last `take_held`

    def take_held(self) -> list[StoppedCall]:
        """Return and clear the calls stopped since the last call of this method, each once."""
        taken, self.held = self.held, []
        return taken

    def feed(self, given: FoldInput) -> list[StageOutput]:
        """Fold one input; returns its outputs, and those of timers due before it."""
        if given.topic == RULES_TOPIC:
            self._take(given.value)
            return []
        self._given = given
        left: list[StageOutput] = []
        if not self._echoes:
            left = self._follow_states(self._pass_time(given.arrived_ms))
            if given.echo:
                return left
        if given.topic in self._folded:
            self._look_at(given)
            left += self._follow_states(
                self.topology.feed(given.topic, (given.value,), timestamp=given.arrived_ms, key=given.key)
            )
        return left

    def finish(self) -> list[StageOutput]:
        """Apply timers due by the last event; the time after it is unknown."""
        return self.topology.tick(self.topology.stream_time)

    def run(self, given: Iterable[FoldInput]) -> Iterator[StageOutput]:
        """Fold all inputs."""
        for one in given:
            yield from self.feed(one)
        yield from self.finish()

    def _pass_time(self, arrived_ms: int) -> list[StageOutput]:
        """Apply timers due between the previous arrival and this one."""
        left: list[StageOutput] = []
        if self._latest > 0 and arrived_ms > self._latest:
            now = self.topology.stream_time + arrived_ms - self._latest
            due = self.topology.next_due()
            if due is not None and due <= now:
                left = self.topology.tick(now)
        self._latest = max(self._latest, arrived_ms)
        return left

    def _follow_states(self, outputs: list[StageOutput]) -> list[StageOutput]:
        return outputs if self._guard is None else self._guard.follow(outputs)

    def _look_at(self, given: FoldInput) -> None:
        """Check the call that an input starts with the guard, before the input is folded."""
        if self._guard is None or given.topic != "events":
            return
        if b'"tool_call.started"' not in (given.value or b""):
            return
        try:
            event = decode_event(given.value)
        except EventRejected:  # the fold reports the fault
            return
        if isinstance(event, ToolCallStarted):
            at = epoch_ms(event.time)
            if given.arrived_ms > 0:
                at = min(at, given.arrived_ms + CLOCK_TOLERANCE_MS)
            held = self._guard.held(event, at)
            if held is not None:
                self.held.append(held)

    def _take(self, kept: bytes | None) -> None:
        told = self._told(kept)
        if told is not None:
            self._source.environment = told.environment
            self._source.rebase(told.base if self._follow else self._source.base)

    def _rules_of(self, topic: str, record: LogRecord) -> RuleSource:
        """Rules in force on Kafka at the position of an input or of a message it caused."""
        given = self._given
        if given is None or self._inputs is None:
            return self._source
        caused = given.caused
        if topic in _TOLD and self._inputs.appended:
            caused = self._inputs.appended.get(_cause(record.value or b"{}").cause, caused)
        number = caused.get(f"{topic}/{(record.key or b'').decode(errors='replace')}", given.edition)
        return self._source if number is None else self._edition(number)

    def _edition(self, number: int) -> RuleSource:
        """Rules, environment and settings in force on Kafka, by index in the inputs' editions."""
        source = self._editions.get(number)
        if source is None:
            assert self._inputs is not None  # noqa: S101 - given by the caller for such inputs
            kept = self._inputs.editions[number]
            told = self._told(kept)
            source = self._source.copy()
            if told is not None:
                source = RuleSource(told.base if self._follow else source.base, told.environment)
                read = msgspec.json.decode(kept, type=RulesPlaced).settings
                for one in self._inputs.settings:
                    if one.offset < read.get(str(one.partition), 0):
                        source.fold(LogRecord(one.key, one.value, one.offset), one.partition)
            while len(self._editions) >= KEPT_EDITIONS:
                del self._editions[next(iter(self._editions))]
            self._editions[number] = source
        return source

    def _told(self, kept: bytes | None) -> RulesInForce | None:
        try:
            return told_rules(kept)
        except ConfigError:
            if self._follow:
                raise
            return None  # the rules are given; the environment at that time is unknown


def told_rules(kept: bytes | None) -> RulesInForce:
    """Rules in force from a record."""
    try:
        return rules_in_force(kept or b"{}")
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"another version of trustfold recorded rules that this one cannot read ({error}); name the rules to "
            "compare with: --against FILE"
        ) from error


def fall_due_alike(*rules: RuleSet) -> bool:
    """True if all rules have the same timeouts of calls."""
    return len({one.calls.overdue_after_ms for one in rules}) <= 1


def recorded_rules(connection: duckdb.DuckDBPyConnection) -> list[RuleSet]:
    """Recorded rules in force over time; empty if the history has none.

    Raises:
        ConfigError: another version recorded rules that this one does not know.
    """
    rows = connection.execute(
        'SELECT record FROM recorded_rules WHERE record IS NOT NULL ORDER BY time, "offset"'
    ).fetchall()
    told = [told_rules(record.encode()).base for (record,) in rows]
    return [rules for rules, before in zip(told, [None, *told], strict=False) if rules != before]


def has_sessions(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether an event of a session passes the filters of the connection."""
    return connection.execute("SELECT 1 FROM events WHERE session_id IS NOT NULL LIMIT 1").fetchone() is not None
