"""The durable embedded engine: the topology over one file.

Everything one batch causes is committed in one transaction before the batch is acknowledged: what came in, what was
decided, the states it touched, the positions. A kill at any point therefore loses nothing acknowledged and doubles
nothing. Outputs are those of `Replay` over the same input, byte for byte, however the input is cut into batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import orjson

from ...errors import ConfigError, StateIncompatible
from ...projections.emitter import Output
from ...projections.local_topology import LocalTopology
from ...projections.rule_source import RULES_TOPIC, RulesInForce, RuleSource
from ...projections.rule_source import TOPIC as SETTINGS
from ...projections.snapshot import header
from ...projections.stage import Stage
from ...projections.topology import DECISION_TOPICS, STAGE_OF_TOPIC, STAGES
from ...rules.rules import Rules
from ...schemas.settings import SettingsOverrides
from ...schemas.topics import TOPICS
from ...security.redaction import redact_record
from ..dead_letters import original
from .store import FIRST_OFFSET, OUTPUTS, Answered, Batch, Root, Store
from .store_views import StoredOutput, Views

LIVE_STATES = 20_000
"""Decoded states each stage keeps between batches: some 100 MB at the size of real sessions. The rest is on disk."""

FORGET_EVERY = 32
"""Batches between two looks for states to drop; each look costs time with every state kept."""

INPUT_TOPICS = frozenset(STAGE_OF_TOPIC) | {SETTINGS}

INTERNAL_TOPICS = frozenset(name for name, topic in TOPICS.items() if topic.internal)
"""Not kept as outputs: they follow from the log, and nobody outside may read them."""


_LOGGED = "rules_logged"
"""Fact: the rules that stand in the log last."""


class Request(NamedTuple):
    """Records of one source topic, or of `settings`, that belong together.

    Attributes:
        token: names the request; one with the same token is answered from the first time and changes nothing.
    """

    topic: str
    values: Sequence[bytes]
    token: bytes = b""


class Receipt(NamedTuple):
    """What became of a request, once it is durable.

    Attributes:
        outputs: everything it caused, every topic, in order; empty when the request was a repeat.
        accepted: records that were folded.
        dead_letters: records that could not be.
        repeated: the request had been answered before.
    """

    outputs: list[Output]
    accepted: int
    dead_letters: int
    repeated: bool = False


class EmbeddedEngine:
    """All stages over one file, in one process, for one thread at a time.

    Attributes:
        source: what the folds go by: the rules, and what the environment and scopes override.
        views: queries over the same file.
        counted: what the folds have counted since the start, by name: `untracked`, failures that counted in their
            tool's key alone because the tool had its most fine keys (`trust.max_fine_keys`).
    """

    def __init__(self, store: Store, source: RuleSource, *, live_states: int = LIVE_STATES) -> None:
        """Take over an open store; `open` is the usual way."""
        self.source = source
        self.views = Views(store.connection, store.path)
        self.counted: Counter[str] = Counter()
        self._store = store
        self._live_states = live_states
        self._batches = 0
        self._stale = True
        self._restore()

    @classmethod
    def open(
        cls,
        path: str | Path,
        rules: Rules | None = None,
        environment: SettingsOverrides | None = None,
        *,
        live_states: int = LIVE_STATES,
    ) -> Self:
        """Open or make a store and go on where it stands.

        Without `rules`, those it was last opened with, and what the environment overrode then.

        Raises:
            StoreLocked: another process runs the engine over this file.
            StoreError: the file cannot be used; the message says why.
            StateIncompatible: another version wrote its states.
        """
        store = Store(path)
        try:
            source = source_in_force(Views(store.connection, store.path)) if rules is None else None
            engine = cls(store, source or RuleSource(rules, environment), live_states=live_states)
            engine.note_rules()
            engine.note_fault(None)
        except BaseException:
            store.close()
            raise
        return engine

    @property
    def rules(self) -> Rules:
        """What holds where no scope overrides anything."""
        return self.source.rules

    def rebase(self, rules: Rules) -> None:
        """Go by other rules from the next batch on; states, and what scopes override, stay as they are."""
        self.source.rebase(rules)
        self.note_rules()

    def note_rules(self) -> None:
        """Leave word of the rules, for commands that open the store without a running engine.

        Where they are others than before they are also appended to the log: what follows there is folded under them.
        """
        kept = self.source.in_force()
        known = self.views.noted(_LOGGED)
        if known is None or _rules_of(known) != _rules_of(orjson.loads(kept)):
            self._store.take_down(Root(RULES_TOPIC, None, kept, -1), _LOGGED)
        self._store.note("rules", msgspec.json.encode(self.source.base))
        self._store.note("environment", msgspec.json.encode(self.source.environment or SettingsOverrides()))

    def note_fault(self, fault: str | None) -> None:
        """Leave word of why the newest rules files are not used; None when they are."""
        self._store.note("rules_fault", msgspec.json.encode(fault))

    @property
    def stream_time(self) -> int:
        """Largest effective time seen, milliseconds; 0 before the first event."""
        return self._refresh().stream_time

    def next_due(self) -> int | None:
        """Earliest time at which something falls due; None if nothing is."""
        return self._refresh().next_due()

    def ingest(self, values: Sequence[bytes], *, arrived_ms: int = -1) -> list[Output]:
        """Fold input events in order; returns everything they caused once it is durable.

        A bad event comes back as an output on `dead-letters`. `arrived_ms` is the wall clock; -1 (a recording) takes
        the events' own times as they are.

        Raises:
            StoreError: nothing of the batch was kept; send it again once the cause is gone.
        """
        return self.submit([Request("events", values)], arrived_ms=arrived_ms)[0].outputs

    def command(self, value: bytes, *, arrived_ms: int = -1) -> list[Output]:
        """Fold one operator's command; returns everything it caused once it is durable.

        Raises:
            StoreError: it was not kept.
        """
        return self.submit([Request("commands", [value])], arrived_ms=arrived_ms)[0].outputs

    def submit(self, requests: Sequence[Request], *, arrived_ms: int = -1) -> list[Receipt]:
        """Fold several requests in order and commit them together; one receipt each.

        Raises:
            ConfigError: a request names a topic that takes no input.
            StoreError: nothing was kept of any of them.
        """
        for request in requests:
            if request.topic not in INPUT_TOPICS:
                raise ConfigError(f"topic {request.topic!r} takes no input; use events, commands or settings")
        # What is stored is what is folded, so that folding the log again comes to the same decisions.
        requests = [request._replace(values=list(map(redact_record, request.values))) for request in requests]
        with _Undo(self):
            answers: dict[bytes, Answered] = {}
            receipts = [self._fold(request, arrived_ms, answers) for request in requests]
            roots = [
                Root(request.topic, None, value, arrived_ms)
                for request, receipt in zip(requests, receipts, strict=True)
                if not receipt.repeated
                for value in request.values
            ]
            outputs = [output for receipt in receipts for output in receipt.outputs]
            self._commit(roots, outputs, arrived_ms, requests=list(answers.items()))
        return receipts

    def tick(self, now_ms: int, *, arrived_ms: int = -1) -> list[Output]:
        """Append and fold everything due at or before `now_ms`; returns what that caused, once durable.

        Raises:
            StoreError: nothing was kept; the next tick tries again.
        """
        with _Undo(self):
            roots: list[Root] = []
            outputs: list[Output] = []
            while due := self._topology.due(now_ms):
                for output in due:
                    roots.append(Root(output.topic, output.key.encode(), output.value, arrived_ms))
                    outputs += self._topology.append(output)
            if roots:
                self._commit(roots, outputs, arrived_ms)
        return outputs

    def republish(self, offsets: Iterable[int], *, arrived_ms: int = -1) -> list[Output]:
        """Fold the records behind dead letters again, as new records of their topics, and mark them as done.

        Raises:
            ConfigError: there is no dead letter at an offset.
            StoreError: nothing was kept.
        """
        chosen = list(offsets)
        with _Undo(self):
            roots = [self._origin(offset, arrived_ms) for offset in chosen]
            outputs = [
                output
                for root in roots
                for output in self._topology.feed(root.topic, (root.value,), timestamp=arrived_ms, key=root.key)
            ]
            self._commit(roots, outputs, arrived_ms, republished=chosen)
        return outputs

    def decisions(
        self, topics: str | Iterable[str] = DECISION_TOPICS, *, after: int = 0, limit: int = 1000
    ) -> list[StoredOutput]:
        """Outputs of one or several topics beyond the offset `after`, oldest first."""
        return self.views.decisions([topics] if isinstance(topics, str) else topics, after=after, limit=limit)

    def states(self) -> dict[str, bytes]:
        """Latest public record of every key that is away from its default."""
        return self.views.states()

    def dead_letters(self, *, after: int = 0, limit: int = 1000, republished: bool = False) -> list[StoredOutput]:
        """Dead letters beyond an offset, oldest first; those republished only if asked for."""
        return self.views.dead_letters(after=after, limit=limit, republished=republished)

    def announce(self, address: str) -> None:
        """Leave word where this process can be reached, for others that find the store taken."""
        self._store.announce(address)

    def forget(self, kept_since_ms: dict[str, int]) -> None:
        """Delete what arrived before the given time of its topic; states are not touched.

        Raises:
            StoreError: nothing was deleted.
        """
        self._store.forget(kept_since_ms)

    def close(self) -> None:
        """Close the file; everything acknowledged is in it already."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fold(self, request: Request, arrived_ms: int, answers: dict[bytes, Answered]) -> Receipt:
        if request.token:
            known = answers.get(request.token) or self._store.answered(request.token)
            if known is not None:
                return Receipt([], *known, repeated=True)
        rejected = self._rejected(request.topic)
        outputs = self._topology.feed(request.topic, request.values, timestamp=arrived_ms)
        bad = len(outputs) if request.topic == SETTINGS else self._rejected(request.topic) - rejected
        if request.token:
            answers[request.token] = Answered(len(request.values) - bad, bad)
        return Receipt(outputs, len(request.values) - bad, bad)

    def _rejected(self, topic: str) -> int:
        stage = STAGE_OF_TOPIC.get(topic)
        return self._topology.processors[stage.name].rejected if stage is not None else 0

    def _origin(self, offset: int, arrived_ms: int) -> Root:
        letter = self.views.dead_letter(offset)
        if letter is None or letter.value is None:
            raise ConfigError(f"no dead letter has the offset {offset}; `trustfold dead-letters list` shows them")
        body = orjson.loads(letter.value)
        return Root(body["topic"], original(body, "key"), original(body, "value"), arrived_ms)

    def _commit(
        self,
        roots: list[Root],
        outputs: list[Output],
        arrived_ms: int,
        *,
        requests: Sequence[tuple[bytes, Answered]] = (),
        republished: Sequence[int] = (),
    ) -> None:
        kept = [output for output in outputs if output.topic not in INTERNAL_TOPICS]
        snapshots = [
            (name, key, snapshot)
            for name, processor in self._topology.processors.items()
            for key, snapshot in processor.snapshot(max(arrived_ms, 0))
        ]
        changed = any(root.topic == SETTINGS for root in roots)
        self._store.write(
            Batch(
                roots,
                self._next_output,
                kept,
                snapshots,
                self._topology.next_offsets,
                arrived_ms,
                requests,
                republished,
                self.source.scopes() if changed else None,
            )
        )
        self._next_output += len(kept)
        self.counted += self._topology.counted()
        self._batches += 1
        if self._batches % FORGET_EVERY == 0:
            for processor in self._topology.processors.values():
                processor.forget_clean(self._live_states)

    def _refresh(self) -> LocalTopology:
        """The topology, taken up anew if a batch was interrupted."""
        if self._stale:
            self._restore()
        return self._topology

    def _restore(self) -> None:
        """Take up the stored states, with what was due before."""
        positions = self._store.positions()
        self._next_output = positions.pop(OUTPUTS, FIRST_OFFSET)
        self.source.replace(self.views.scopes())
        self._topology = LocalTopology(self.source, load=self._store.load, next_offsets=positions)
        for stage in STAGES:
            with closing(self._store.headers(stage.name)) as headers:
                self._topology.processors[stage.name].adopt(_readable(stage, headers))
        self._stale = False


class _Undo:
    """Whatever interrupts a batch, the states in memory are those of the last commit before the next one begins."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        self._engine._refresh()  # noqa: SLF001 - one class in two

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._engine._stale = kind is not None  # noqa: SLF001 - as above


def _readable(stage: Stage[Any], headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Pass on the headers of readable states; stop at the first other one, before any event is taken."""
    for key, snapshot in headers:
        version = header(snapshot)[0]
        if version != stage.state_version and version not in stage.older_states:
            raise StateIncompatible(
                f"the store's {stage.name} states have version {version}, this trustfold reads version "
                f"{stage.state_version}; run the version that wrote them, or start with a new store"
            )
        yield key, snapshot


def _rules_of(noted: object) -> RulesInForce | None:
    """Rules as they were noted; None where another version's do not fit."""
    try:
        return msgspec.convert(noted, RulesInForce)
    except msgspec.ValidationError:
        return None


def source_in_force(views: Views) -> RuleSource:
    """What a store was last folded under: rules, environment, scopes; the defaults for a new one."""
    rules, environment = views.noted("rules"), views.noted("environment")
    source = RuleSource(
        msgspec.convert(rules, Rules) if rules is not None else Rules(),
        msgspec.convert(environment, SettingsOverrides) if environment is not None else None,
    )
    source.replace(views.scopes())
    return source
