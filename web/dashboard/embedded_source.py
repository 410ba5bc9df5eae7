"""Dashboard source of a served store, read concurrently with its writer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import orjson

from ...errors import TrustfoldError
from ...history.files import store_source
from ...history.sessions.ranking import SessionSummary
from ...history.sessions.timeline import TimelineEntries
from ...history.sessions.timeline_calls import by_cause
from ...projections.emitter import StageOutput
from ...projections.incidents import news_of
from ...projections.session.session_state import SessionState
from ...rules.rules import RuleSet
from ...schemas.codec import encode
from ...schemas.commands import Command
from ...schemas.events import Event
from ...streams.embedded.engine import SubmitRequest
from ...streams.embedded.server import EmbeddedService
from ...streams.embedded.store import STORE_ID
from ...streams.embedded.store_views import DEAD_LETTERS, StoredDecision, StoredEvent, StoredOutput, session_of
from .current_state import MAX_OPEN, OutputRecord, StateBoard, place_in_words, read_store
from .recorded_events import RecordedEvents
from .source import DataFreshness, PlacedRecord, Record, SearchResult, foreign_history, topic_of, wrong_clocks


class EmbeddedSource:
    """`DashboardSource` of `trustfold up`."""

    def __init__(self, service: EmbeddedService, history: Path | None = None) -> None:
        """Follow the engine of `service`; create it before the service starts."""
        self.board = StateBoard()
        self.history = history
        self._service = service
        engine = service.writer.engine
        read_store(self.board, engine.views)
        self._newest_ms = engine.views.newest_ms()
        self._summaries: dict[str, SessionSummary] = {}
        self._listing = asyncio.Lock()
        self._patterns = Counter(engine.views.patterns_by_session())
        self._origin = store_source(engine.views.noted(STORE_ID), service.path)
        self._recorded = RecordedEvents(history) if history is not None else None
        if self._recorded is not None:
            service.ending.append(self._recorded.close)
        service.writer.heard.append(self._hear)
        service.writer.listeners.append(self._listen)

    @property
    def name(self) -> str:
        """Path of the store."""
        return f"store {self._service.path}"

    @property
    def foreign(self) -> str:
        """Why the history belongs to another store; empty if it matches."""
        return foreign_history(self.history, self._origin)

    @property
    def rules(self) -> RuleSet:
        """Rules in force."""
        return self._service.writer.engine.rules

    @property
    def _past(self) -> RecordedEvents | None:
        """Recorded history of this store, if any."""
        return None if self.foreign else self._recorded

    def freshness(self) -> DataFreshness:
        """Age of the board's data."""
        board, engine = self.board, self._service.writer.engine
        return DataFreshness(
            self._newest_ms,
            fault=self._service.writer.fault,
            past=self.foreign or None,
            skipped=board.skipped,
            skipped_last=place_in_words(*board.skipped_last) if board.skipped_last is not None else "",
            clocks=wrong_clocks(engine.clock.ahead_s, engine.counted["clamped"]),
        )

    async def renew(self) -> None:
        """Read the states of sessions that have changed since the last time, for the list and for the board."""
        async with self._listing:
            engine = self._service.writer.engine
            keys, touched = None, engine.touched
            if touched is None:
                engine.touched = {}
                self._summaries.clear()
            else:
                keys = [touched.popitem()[0] for _ in range(len(touched))]
            try:
                found: list[tuple[str, SessionState]] = await self._service.search("sessions", keys)
            except TrustfoldError:
                engine.touched = None
                raise
            for key in keys or ():
                self._summaries.pop(key.decode(errors="replace"), None)
            new = {session_id: _summary(session_id, state) for session_id, state in found}
            self._summaries.update(new)
            self.board.detail(one.news for one in new.values())

    async def sessions(self) -> list[SessionSummary]:
        """All sessions that have not ended."""
        await self.renew()
        listed = dict(self._summaries)
        for name, count in self._patterns.items():
            if name in listed:
                listed[name] = listed[name]._replace(patterns=count)
        for name, news in self.board.sessions.items():
            if news.lost and name in listed:
                listed[name] = listed[name]._replace(news=listed[name].news._replace(lost=news.lost))
        return list(listed.values())

    async def decisions(self, *, session: str = "", before: int | None = None, limit: int = 200) -> list[PlacedRecord]:
        """Latest decisions, oldest first."""
        if session:
            found = await self._service.search("session_decisions", session, before=before, limit=limit)
            return [_decided(one) for one in found]
        return [_placed(one) for one in await self._service.search("latest", before=before, limit=limit)]

    async def decision(self, decision_id: str) -> PlacedRecord | None:
        """Decision with an id, from the store, or from the history if it is too old for the store."""
        found = await self._service.search("decision", decision_id)
        if found is not None:
            return _decided(found)
        return await past.decision(decision_id) if (past := self._past) is not None else None

    async def circuits(self, since_ms: int, until_ms: int) -> list[PlacedRecord]:
        """Changes of circuits within a time range, oldest first."""
        return [_decided(one) for one in await self._service.search("circuit_changes", since_ms, until_ms)]

    async def events(self, *, session: str, before: int | None = None, limit: int = 200) -> list[PlacedRecord]:
        """Latest input events of a session, oldest first, followed by those that the engine appended.

        The history has those before `before` that are too old for the store.
        """
        found = await self._service.search("session_events", session, before=before, limit=limit)
        if before is None:
            found += await self._service.search("appended_events", session)
        elif not found and (past := self._past) is not None:
            return await past.events(session, before, limit)
        return [_happened(one) for one in found]

    async def records(self, session: str) -> dict[str, Record]:
        """Records of the latest calls of a session, by the event that ended each."""
        return by_cause(await self._service.search("session_calls", session))

    async def recorded(self, session: str) -> TimelineEntries | None:
        """Timeline of a session in the history; None where it is not recorded."""
        return await past.timeline(session, self.rules) if (past := self._past) is not None else None

    async def events_up_to(self, offset: int, *, limit: int = 2000) -> list[PlacedRecord]:
        """Latest input events of all sessions up to an offset, oldest first."""
        return [_happened(one) for one in await self._service.search("events_up_to", offset, limit=limit)]

    async def events_of(self, ids: Collection[str], *, session: str = "") -> list[PlacedRecord]:
        """Input events of the given ids, oldest first; the history has those that are too old for the store."""
        del session
        found = [_happened(one) for one in await self._service.search("events_of", ids)]
        missing = set(ids) - {str(one.record["id"]) for one in found}
        if missing and (past := self._past) is not None:
            return [*await past.events_of(missing), *found]
        return found

    async def search(self, text: str, limit: int) -> SearchResult:
        """Events and open sessions that hold a text; events too old for the store are those of the history."""
        found, first = await self._service.search("events_with", text, limit)
        here = SearchResult(
            [orjson.loads(one.value) for one in found], await self._service.search("sessions_with", text)
        )
        if len(found) == limit:
            return here._replace(left_out=f"only the latest {limit:,} events that hold this text were looked at")
        return here.and_then(await past.search(text, limit, first)) if (past := self._past) is not None else here

    async def send(self, records: Sequence[Command | Event]) -> list[Record] | None:
        """Send orders and events; returns the decisions they caused."""
        caused: list[Record] = []
        for record in records:
            receipt = await self._service.writer.submit(SubmitRequest(topic_of(record), [encode(record)]))
            for output in receipt.outputs:
                if output.value is None:
                    continue
                if output.topic == DEAD_LETTERS:
                    raise TrustfoldError(f"the order was not taken: {orjson.loads(output.value)['message']}")
                if output.topic != "state":
                    caused.append(orjson.loads(output.value))
        return caused

    def _hear(self, requests: Sequence[SubmitRequest]) -> None:
        """Notify the listeners of a session of new events."""
        self._newest_ms = time.time_ns() // 1_000_000
        self.board.hear(value for request in requests if request.topic == "events" for value in request.values)
        watched = self.board.watched
        if any(topic.startswith("session:") for topic in watched):
            sessions = (session_of(value) for request in requests for value in request.values)
            self.board.notify(Counter(topic for one in sessions if (topic := f"session:{one}") in watched))

    def _listen(self, outputs: Sequence[StageOutput]) -> None:
        self.board.apply(OutputRecord(one.topic, one.key, one.value) for one in outputs)
        for one in outputs:
            if one.type == "pattern.detected" and (session := session_of(one.value)):
                self._patterns[session] += 1
        while len(self._patterns) > MAX_OPEN:
            del self._patterns[next(iter(self._patterns))]


def _placed(stored: StoredOutput) -> PlacedRecord:
    return PlacedRecord(stored.offset, orjson.loads(stored.output.value or b"{}"))


def _decided(stored: StoredDecision) -> PlacedRecord:
    return PlacedRecord(stored.offset, orjson.loads(stored.value), stored.arrived_ms)


def _happened(stored: StoredEvent) -> PlacedRecord:
    return PlacedRecord(stored.seq, orjson.loads(stored.value), stored.arrived_ms)


def _summary(session_id: str, state: SessionState) -> SessionSummary:
    return SessionSummary(
        session_id, state.workspace_id, state.model, state.calls, state.failed_calls, state.neutral_calls,
        news_of(session_id, state), 0, len(state.open_calls), state.clock,
    )  # fmt: skip
