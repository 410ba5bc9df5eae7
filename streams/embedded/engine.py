"""Durable embedded engine: the topology over one SQLite file.

Everything a batch causes is committed in one transaction before the batch is acknowledged: inputs, outputs, touched
states and positions. A kill at any point therefore loses nothing acknowledged and duplicates nothing. Outputs are those
of `FileReplay` over the same input, byte for byte, however the input is split into batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import orjson

from ...errors import ConfigError, EventRejected, StateIncompatible
from ...projections.dead_letters import dead_letter, original
from ...projections.emitter import StageOutput, is_record_of_call
from ...projections.local_topology import LocalTopology, LogRecord
from ...projections.rule_source import RULES_TOPIC, RulesInForce, RuleSource
from ...projections.rule_source import TOPIC as SETTINGS
from ...projections.snapshot import header
from ...projections.stage import TopologyStage
from ...projections.topology import STAGE_OF_TOPIC, STAGES
from ...rules.rules import RuleSet
from ...schemas.settings import SettingsOverrides
from ...schemas.topics import TOPICS
from ...security.redaction import redact_record
from ..stream_clock import StreamClock
from .publishers import SenderIdentity, SessionOwners
from .store import FIRST_OFFSET, OUTPUTS, RootRecord, StoredAnswer, StoreTransaction, StoreWriter
from .store_views import StoreViews

# Number of decoded states each stage keeps between batches: about 20 MB for real sessions. The rest is on disk.
LIVE_STATES = 4_000

FORGET_EVERY = 32  # Batches between two evictions of decoded states; each costs time with every kept state
MAX_TOUCHED = 20_000  # Sessions that are noted for a follower; one that comes later reads all of them

INPUT_TOPICS = frozenset(STAGE_OF_TOPIC) | {SETTINGS}

# Topics that are not stored as outputs, but for the records of calls: only trustfold may read them
INTERNAL_TOPICS = frozenset(name for name, topic in TOPICS.items() if topic.internal)


_LOGGED = "rules_logged"  # Name of the stored fact with the rules that were logged last


class SubmitRequest(NamedTuple):
    """Records of one source topic, or of `settings`, that are submitted together."""

    topic: str
    values: Sequence[bytes]
    token: bytes = b""  # id of the request; a repeated one returns the first answer and changes nothing
    publisher: SenderIdentity | None = None  # who sends events; None: whoever may say anything, such as an operator


class CommitReceipt(NamedTuple):
    """Result of a request after its commit."""

    outputs: list[StageOutput]  # all outputs it caused, of every topic, in order; empty if the request was a repetition
    accepted: int  # number of folded records
    dead_letters: int  # number of rejected records
    repeated: bool = False  # the request had been answered before


class EmbeddedEngine:
    """All stages over one file, in one process; not thread-safe."""

    def __init__(self, store: StoreWriter, source: RuleSource, clock: StreamClock | None = None) -> None:
        """Use an open store; usually created by `open`."""
        self.source = source  # rules with the overrides of environment and scopes
        self.clock = clock or StreamClock()  # set at each commit that moves stream time; `fall_due` goes by it
        self.views = StoreViews(store.connection, store.path)  # queries over the same file
        # counters of the folds since the start, by name: `untracked`, failures counted only in their tool's key because
        # the tool had its most fine keys (`trust.max_fine_keys`)
        self.counted: Counter[str] = Counter()
        # sessions whose states were stored or deleted since a follower took them; None: nobody follows
        self.touched: dict[bytes, None] | None = None
        self._store = store
        self._owners = SessionOwners(store.owner, self._exists, lambda session: self.views.owner(session)[0])
        self._batches = 0
        self._stale = True
        self._restore()

    @classmethod
    def open(
        cls,
        path: str | Path,
        rules: RuleSet | None = None,
        environment: SettingsOverrides | None = None,
        *,
        clock: StreamClock | None = None,
    ) -> Self:
        """Open or create a store and continue from its last commit.

        Without `rules`, uses the rules and environment overrides that the store was last opened with. The clock goes on
        from the stream time of that commit.

        Raises:
            StoreLocked: another process runs an engine over this file.
            StoreError: the file cannot be used; the message says why.
            StateIncompatible: another version wrote its states.
        """
        store = StoreWriter(path)
        try:
            source = source_in_force(StoreViews(store.connection, store.path)) if rules is None else None
            engine = cls(store, source or RuleSource(rules, environment), clock)
            engine.note_rules()
            engine.note_fault(None)
        except BaseException:
            store.close()
            raise
        return engine

    @property
    def rules(self) -> RuleSet:
        """Rules without any scope's overrides."""
        return self.source.rules

    def rebase(self, rules: RuleSet) -> None:
        """Use other rules from the next batch on; states and scope overrides are unchanged."""
        self.source.rebase(rules)
        self.note_rules()

    def note_rules(self) -> None:
        """Store the rules, for commands that read the store without a running engine.

        If they differ from the previous ones they are also appended to the log: later records are folded under them.
        """
        kept = self.source.in_force()
        known = self.views.noted(_LOGGED)
        if known is None or _rules_of(known) != _rules_of(orjson.loads(kept)):
            self._store.take_down(RootRecord(RULES_TOPIC, None, kept, -1), _LOGGED)
        self._store.note("rules", msgspec.json.encode(self.source.base))
        self._store.note("environment", msgspec.json.encode(self.source.environment or SettingsOverrides()))

    def note_fault(self, fault: str | None) -> None:
        """Store why the newest rules files are not used; None if they are."""
        self._store.note("rules_fault", msgspec.json.encode(fault))

    @property
    def stream_time(self) -> int:
        """Return the largest effective time seen, milliseconds; 0 before the first event."""
        return self._refresh().stream_time

    def next_due(self) -> int | None:
        """Return the earliest deadline of all states, milliseconds; None without one."""
        return self._refresh().next_due()

    def ingest(self, values: Sequence[bytes], *, arrived_ms: int = -1) -> list[StageOutput]:
        """Fold input events in order and commit; return all outputs they caused.

        A rejected event becomes an output on `dead-letters`. `arrived_ms` is the wall clock; -1 (a recording) uses the
        events' own times.

        Raises:
            StoreError: nothing of the batch was stored; send it again once the cause is fixed.
        """
        return self.submit([SubmitRequest("events", values)], arrived_ms=arrived_ms)[0].outputs

    def submit(self, requests: Sequence[SubmitRequest], *, arrived_ms: int = -1) -> list[CommitReceipt]:
        """Fold several requests in order and commit them together; return one receipt each.

        Raises:
            ConfigError: a request names a topic that accepts no input.
            StoreError: nothing of them was stored.
        """
        for request in requests:
            if request.topic not in INPUT_TOPICS:
                raise ConfigError(f"topic {request.topic!r} takes no input; use events, commands or settings")
        # The stored values are the folded ones, so that folding the log again gives the same decisions.
        requests = [request._replace(values=list(map(redact_record, request.values))) for request in requests]
        with self._batch():
            answers: dict[bytes, StoredAnswer] = {}
            folded = [self._fold(request, arrived_ms, answers) for request in requests]
            receipts = [receipt for _, receipt in folded]
            roots = [
                RootRecord(request.topic, None, value, arrived_ms)
                for request, (admitted, _) in zip(requests, folded, strict=True)
                for value in admitted
            ]
            outputs = [output for receipt in receipts for output in receipt.outputs]
            self._commit(roots, outputs, arrived_ms, requests=list(answers.items()))
        return receipts

    def fall_due(self) -> list[StageOutput]:
        """Append and fold everything due by the engine's clock and commit; return the outputs.

        Raises:
            StoreError: nothing was stored; the next call retries.
        """
        due, now = self.next_due(), self.clock.now()
        return [] if due is None or due > now else self.tick(now, arrived_ms=self.clock.wall_ms())

    def tick(self, now_ms: int, *, arrived_ms: int = -1) -> list[StageOutput]:
        """Append and fold everything due at or before `now_ms` and commit; return the outputs.

        Raises:
            StoreError: nothing was stored; the next tick retries.
        """
        with self._batch():
            roots: list[RootRecord] = []
            outputs: list[StageOutput] = []
            while due := self._topology.due(now_ms):
                for output in due:
                    roots.append(RootRecord(output.topic, output.key.encode(), output.value, arrived_ms))
                    outputs += self._topology.append(output)
            if roots:
                self._commit(roots, outputs, arrived_ms)
        return outputs

    def republish(self, offsets: Iterable[int], *, arrived_ms: int = -1) -> list[StageOutput]:
        """Fold the records of dead letters again, as new records of their topics, and mark them as republished.

        Raises:
            ConfigError: there is no dead letter at an offset.
            StoreError: nothing was kept.
        """
        chosen = list(offsets)
        with self._batch():
            roots = [self._origin(offset, arrived_ms) for offset in chosen]
            outputs = [
                output
                for root in roots
                for output in self._topology.feed(root.topic, (root.value,), timestamp=arrived_ms, key=root.key)
            ]
            self._commit(roots, outputs, arrived_ms, republished=chosen)
        return outputs

    def announce(self, address: str) -> None:
        """Store this process's address, for other processes that find the store locked."""
        self._store.announce(address)

    def forget(self, kept_since_ms: dict[str, int]) -> None:
        """Delete records that arrived before the given time of their topic; states are unchanged.

        Raises:
            StoreError: nothing was deleted.
        """
        self._store.forget(kept_since_ms)

    def close(self) -> None:
        """Close the file; everything acknowledged has been committed."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fold(
        self, request: SubmitRequest, arrived_ms: int, answers: dict[bytes, StoredAnswer]
    ) -> tuple[Sequence[bytes], CommitReceipt]:
        """Return the folded values, and the receipt."""
        if request.token:
            known = answers.get(request.token) or self._store.answered(request.token)
            if known is not None:
                return (), CommitReceipt([], *known, repeated=True)
        rejected = self._rejected(request.topic)
        values, letters = self._admitted(request, arrived_ms)
        outputs = self._topology.feed(request.topic, values, timestamp=arrived_ms)
        bad = len(outputs) if request.topic == SETTINGS else self._rejected(request.topic) - rejected + len(letters)
        accepted = len(request.values) - bad
        if request.token:
            answers[request.token] = StoredAnswer(accepted, bad)
        return values, CommitReceipt(letters + outputs, accepted, bad)

    def _admitted(self, request: SubmitRequest, arrived_ms: int) -> tuple[Sequence[bytes], list[StageOutput]]:
        """Return what the publisher of a request may say, and dead letters of the rest, which is not folded."""
        if request.publisher is None:
            return request.values, []
        admitted: list[bytes] = []
        letters: list[StageOutput] = []
        for value in request.values:
            try:
                admitted.append(self._owners.admit(value, request.publisher))
            except EventRejected as rejected:
                offset = self._topology.next_offsets[request.topic]
                self._topology.next_offsets[request.topic] = offset + 1
                record = LogRecord(None, value, offset, arrived_ms)
                letters.append(dead_letter(record, request.topic, 0, rejected))
        return admitted, letters

    def _exists(self, session: str) -> bool:
        return self._store.load(STAGE_OF_TOPIC["events"].name, session.encode()) is not None

    def _rejected(self, topic: str) -> int:
        stage = STAGE_OF_TOPIC.get(topic)
        return self._topology.processors[stage.name].rejected if stage is not None else 0

    def _origin(self, offset: int, arrived_ms: int) -> RootRecord:
        letter = self.views.dead_letter(offset)
        if letter is None or letter.value is None:
            raise ConfigError(f"no dead letter has the offset {offset}; `trustfold dead-letters list` shows them")
        body = orjson.loads(letter.value)
        return RootRecord(body["topic"], original(body, "key"), original(body, "value"), arrived_ms)

    def _commit(
        self,
        roots: list[RootRecord],
        outputs: list[StageOutput],
        arrived_ms: int,
        *,
        requests: Sequence[tuple[bytes, StoredAnswer]] = (),
        republished: Sequence[int] = (),
    ) -> None:
        kept = [output for output in outputs if output.topic not in INTERNAL_TOPICS or is_record_of_call(output)]
        snapshots = [
            (name, key, snapshot)
            for name, processor in self._topology.processors.items()
            for key, snapshot in processor.snapshot(max(arrived_ms, 0))
        ]
        changed = any(root.topic == SETTINGS for root in roots)
        self._store.write(
            StoreTransaction(
                roots,
                self._next_output,
                kept,
                snapshots,
                self._topology.next_offsets,
                arrived_ms,
                requests,
                republished,
                self.source.scopes() if changed else None,
                self._owners.claimed(),
            )
        )
        if self.touched is not None:
            self.touched.update((key, None) for stage, key, _ in snapshots if stage == STAGE_OF_TOPIC["events"].name)
            if len(self.touched) > MAX_TOUCHED:
                self.touched = None
        self.clock.reach(self._topology.stream_time)
        self._next_output += len(kept)
        self.counted += self._topology.counted()
        self._batches += 1
        if self._batches % FORGET_EVERY == 0:
            for processor in self._topology.processors.values():
                processor.forget_clean(LIVE_STATES)

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """If a batch is interrupted, the in-memory states are reloaded from the last commit before the next batch."""
        self._refresh()
        self._stale = True
        yield
        self._stale = False

    def _refresh(self) -> LocalTopology:
        """Return the topology, restored from the store if a batch was interrupted."""
        if self._stale:
            self._restore()
        return self._topology

    def _restore(self) -> None:
        """Load the stored states with their deadlines."""
        positions = self._store.positions()
        self._next_output = positions.pop(OUTPUTS, FIRST_OFFSET)
        self.source.replace(self.views.scopes())
        self._owners.forget()
        self._topology = LocalTopology(self.source, load=self._store.load, next_offsets=positions)
        for stage in STAGES:
            with closing(self._store.headers(stage.name)) as headers:
                self._topology.processors[stage.name].adopt(_of_this_version(stage, headers))
        self.clock.reach(self._topology.stream_time)
        self._stale = False


def _of_this_version(
    stage: TopologyStage[Any], headers: Iterable[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers of states; raise at the first state of another version, before any event is folded."""
    for key, snapshot in headers:
        version = header(snapshot)[0]
        if version != stage.state_version:
            raise StateIncompatible(
                f"the store's {stage.name} states have version {version}, this trustfold reads version "
                f"{stage.state_version}; run the version that wrote them, or rebuild them "
                "by publishing the events to a new store"
            )
        yield key, snapshot


def _rules_of(noted: object) -> RulesInForce | None:
    """Return stored rules; None if another version wrote them."""
    try:
        return msgspec.convert(noted, RulesInForce)
    except msgspec.ValidationError:
        return None


def source_in_force(views: StoreViews) -> RuleSource:
    """Return the rules, environment and scopes a store was last folded under; the defaults for a new one."""
    rules, environment = views.noted("rules"), views.noted("environment")
    source = RuleSource(
        msgspec.convert(rules, RuleSet) if rules is not None else RuleSet(),
        msgspec.convert(environment, SettingsOverrides) if environment is not None else None,
    )
    source.replace(views.scopes())
    return source
