"""Kafka client: reads the whole `state` topic, writes orders to `commands`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import orjson

from ...errors import TrustfoldError
from ...projections.local_topology import LogRecord
from ...projections.rule_source import RuleSource
from ...projections.topology import STAGE_OF_TOPIC
from ...rules.levels import set_by
from ...schemas.codec import encode
from ...schemas.commands import Command
from ...schemas.events import SessionSettingsChanged
from ...schemas.settings import SettingsChanged
from ...security.untrusted import visible
from ..render import note
from .client import (
    DecisionRecord,
    KnownSettings,
    ListedLetter,
    Record,
    ReloadResult,
    RepublishResult,
    SettingsOwner,
    StateOverview,
    decision_records,
    state_records,
)
from .kafka_dead_letters import LetterBox
from .kafka_log import KafkaSettings, OutgoingRecord, StoredRecord, command_key, read, run, standing_of, write

MANY_UNFOLDED = 1_000  # Records from which on running workers count as late; fewer are always under way


class KafkaTarget:
    """Target that is a Kafka cluster, under one topic prefix."""

    def __init__(self, bootstrap: str | None = None) -> None:
        """Connect to the given brokers, else to those of the environment.

        Raises:
            ConfigError: the environment's Kafka settings make no sense.
        """
        self.kafka = KafkaSettings.from_env(bootstrap=bootstrap)

    @property
    def name(self) -> str:
        """Name of the target in messages."""
        return self.kafka.bootstrap

    def server(self) -> None:
        """Workers have no server for commands."""

    def dashboard(self) -> str:
        """Raise TrustfoldError: the dashboard of workers has an address of its own."""
        raise TrustfoldError("the dashboard of workers runs where `trustfold web` was started; it prints its address")

    def session(self, session_id: str) -> Record | None:
        """Raise TrustfoldError: finding one session's events would need reading the whole topic."""
        raise TrustfoldError(
            f"one session cannot be read from {self.name}; record the log (`trustfold record`) and name the "
            f"directory: `trustfold story {session_id} --history DIR`"
        )

    def overview(self) -> StateOverview:
        """Latest record of every key of the `state` topic."""
        latest: dict[str, bytes | None] = {}
        for record in self._read("state"):
            latest[record.key] = record.value
        values = [(key, value) for key, value in sorted(latest.items()) if value is not None]
        return StateOverview(state_records(self._objects("state", values)), None, unfolded=self._unfolded())

    def _unfolded(self) -> str:
        try:
            standing = run(self.kafka, standing_of(self.kafka, list(map(self.kafka.topic, STAGE_OF_TOPIC))))
        except TrustfoldError:  # the states were read; the group may be another one's to see
            return ""
        late = f"{standing.behind:,} records are still to be folded" if standing.behind >= MANY_UNFOLDED else ""
        return standing.fault(self.kafka.app_id) or late

    def incidents(self) -> list[Record]:
        """Incidents of the present, most urgent first; of questions and lost calls those of the latest events."""
        from ...web.dashboard.current_state import FIRST_EVENTS, OutputRecord, StateBoard

        board = StateBoard()
        for topic in ("state", "nudges"):
            board.apply(OutputRecord(topic, one.key, one.value) for one in self._read(topic))
        board.hear(one.value for one in self._read("events", FIRST_EVENTS))
        return [one.record() for one in board.incidents(time.time_ns() // 1_000_000)]

    def history(self, limit: int) -> list[DecisionRecord]:
        """Latest decisions about tools, oldest first."""
        decisions: list[Record] = []
        for topic in ("escalations", "breakers"):
            values = [(record.key, record.value) for record in self._read(topic) if record.value]
            decisions += self._objects(topic, values)
        return decision_records(sorted(decisions, key=lambda decision: str(decision.get("time")))[-limit:])

    def _objects(self, topic: str, values: Iterable[tuple[str, bytes]]) -> list[Record]:
        """Decode values of a topic, given with their keys; a note names those that are no JSON objects."""
        found: list[Record] = []
        for key, value in values:
            try:
                record = orjson.loads(value)
            except orjson.JSONDecodeError:
                record = None
            if isinstance(record, dict):
                found.append(record)
            else:
                name = self.kafka.topic(topic)
                note(f"topic {name}: the record of key {visible(key)} is no JSON object and is left out")
        return found

    def order(self, commands: Sequence[Command]) -> None:
        """Write commands; the workers apply them as they read them."""
        topic = self.kafka.topic("commands")
        self._write([OutgoingRecord(topic, command_key(command).encode(), encode(command)) for command in commands])

    def settings(self, who: SettingsOwner) -> KnownSettings:
        """Settings of the workspace and user, from the `settings` topic."""
        source = RuleSource()
        for record in self._read("settings"):
            source.fold(LogRecord(record.key.encode(), record.value, 0), 0)
        here = "what the workers' own rules file and environment, and the session, set is not known over Kafka"
        return KnownSettings(source.base, source.levels(who.workspace, who.user), here)

    def save(self, changes: Sequence[SettingsChanged]) -> None:
        """Write settings, a tombstone for a scope that overrides nothing; the workers apply them as they read them."""
        topic = self.kafka.topic("settings")
        self._write(
            [
                OutgoingRecord(topic, one.scope.encode(), encode(one) if set_by(one.overrides) else None)
                for one in changes
            ]
        )

    def save_sessions(self, events: Sequence[SessionSettingsChanged]) -> None:
        """Write `session.configured` events."""
        topic = self.kafka.topic("events")
        self._write([OutgoingRecord(topic, event.session_id.encode(), encode(event)) for event in events])

    def reload(self) -> ReloadResult:
        """Raise TrustfoldError: each worker reloads its own files.

        Raises:
            TrustfoldError: always.
        """
        raise TrustfoldError("each worker reads its own files by itself, about a second after they change")

    def dead_letters(self, *, everything: bool) -> list[ListedLetter]:
        """Dead letters that the topic still holds, each once, with the state that its marks give."""
        return run(self.kafka, LetterBox(self.kafka).letters(everything=everything))

    def republish(self, letters: Sequence[ListedLetter]) -> RepublishResult:
        """Write the records of dead letters to their topics again; each once, even with concurrent processes."""
        return run(self.kafka, LetterBox(self.kafka).republish(letters))

    def _read(self, topic: str, most: int | None = None) -> list[StoredRecord]:
        """Records of a topic, oldest first; at most the latest `most` of each partition."""
        records, _ = run(self.kafka, read(self.kafka, self.kafka.topic(topic), most=most))
        return records

    def _write(self, records: Sequence[OutgoingRecord]) -> None:
        run(self.kafka, write(self.kafka, records))
